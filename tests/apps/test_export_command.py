from __future__ import annotations

from pathlib import Path

import pytest

testing = pytest.importorskip("typer.testing")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def run(*arguments: object):
    from efdm.apps.cli.group import app

    return testing.CliRunner().invoke(app, ["export", *map(str, arguments)], env={"COLUMNS": "300"})


@pytest.mark.long
def test_the_shipped_network(tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    result = run("small", "-o", out)
    assert result.exit_code == 0, result.output
    assert "mean difference from PyTorch 0.0" in result.output
    assert "s in onnxruntime" in result.output
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["content", "strength", "style"]


def test_mistakes(tmp_path: Path) -> None:
    result = run("tiny", "-o", tmp_path / "x.onnx")
    assert result.exit_code == 2
    assert "small" in result.output
    result = run("small", "-o", tmp_path / "x.onnx", "--part", "half")
    assert result.exit_code == 2
    assert "whole" in result.output
    assert not list(tmp_path.iterdir())
