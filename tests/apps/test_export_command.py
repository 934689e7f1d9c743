from __future__ import annotations

from pathlib import Path

import pytest

from efdm.models.networks import StyleNetwork
from efdm.progress import Report
from efdm.style.export import Check

testing = pytest.importorskip("typer.testing")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def run(*arguments: object):
    from efdm.apps.cli.group import app

    return testing.CliRunner().invoke(app, ["export", *map(str, arguments)], env={"COLUMNS": "300"})


def test_the_result_is_compared_with_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the guide exports the shipped network."""

    def export(network: StyleNetwork, path: Path, part: str, progress: Report) -> Check:
        path.write_bytes(bytes(1000))
        return Check(0.001, 0.25, 0.2, (512, 384))

    monkeypatch.setattr("efdm.apps.cli.export.export_onnx", export)
    result = run("small", "-o", tmp_path / "small.onnx")
    assert result.exit_code == 0, result.output
    assert "mean difference from PyTorch 0.255/255" in result.output
    assert "512 x 384: 0.25 s in onnxruntime" in result.output


def test_mistakes(tmp_path: Path) -> None:
    result = run("tiny", "-o", tmp_path / "x.onnx")
    assert result.exit_code == 2
    assert "small" in result.output
    result = run("small", "-o", tmp_path / "x.onnx", "--part", "half")
    assert result.exit_code == 2
    assert "whole" in result.output
    assert not list(tmp_path.iterdir())
