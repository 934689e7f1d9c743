from functools import partial
from pathlib import Path

import pytest
from commands import invoke

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


run = partial(invoke, "export")


@pytest.mark.long
def test_the_shipped_network(tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    result = run("small", "-o", out)
    assert "mean difference from PyTorch 0.0" in result.output
    assert "s in onnxruntime" in result.output
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["content", "strength", "style"]


def test_mistakes(tmp_path: Path) -> None:
    assert "model='tiny' is not one of 'small'" in run("tiny", "-o", tmp_path / "x.onnx", code=2).output
    assert "whole" in run("small", "-o", tmp_path / "x.onnx", "--part", "half", code=2).output
    assert not list(tmp_path.iterdir())
