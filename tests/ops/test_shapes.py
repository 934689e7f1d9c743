"""The annotated shapes hold: operations are run once more with run-time shape checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from efdm import kernels

pytest.importorskip("jaxtyping")
pytest.importorskip("beartype")

HERE = Path(__file__).parent
CHECKED = bool(os.environ.get("EFDM_CHECK_SHAPES"))


@pytest.mark.skipif(CHECKED, reason="runs the tests below")
@pytest.mark.slow
def test_annotated_shapes_hold() -> None:
    files = [str(HERE / name) for name in ("test_shapes.py", "test_match.py", "test_gradients.py")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "not gpu and not slow",
        "-k",
        "not tracing",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    environment = {**os.environ, "EFDM_CHECK_SHAPES": "1"}
    done = subprocess.run(command, env=environment, cwd=HERE.parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.skipif(not CHECKED, reason="runs as part of the test above")
def test_wrong_shapes_are_detected() -> None:
    with pytest.raises(TypeError, match="sort_match"):
        kernels.sort_match(torch.rand(2, 3), torch.rand(2, 4))
