"""Run the operations once more with every annotated shape checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jaxtyping")
pytest.importorskip("beartype")

HERE = Path(__file__).parent
CHECKED = {**os.environ, "EFDM_CHECK_SHAPES": "1"}


@pytest.mark.slow
def test_annotated_shapes_hold() -> None:
    names = ("test_efdm.py", "test_efdm_inputs.py", "test_gradients.py", "test_histogram.py", "test_moments.py")
    files = [str(HERE / name) for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not gpu and not slow", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, env=CHECKED, cwd=HERE.parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_a_wrong_shape_is_noticed() -> None:
    script = "import torch; from efdm import kernels; kernels.sort_match(torch.rand(2, 3), torch.rand(2, 4))"
    done = subprocess.run([sys.executable, "-c", script], env=CHECKED, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "jaxtyping" in done.stderr
