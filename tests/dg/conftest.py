from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from efdm.dg import run as running


@pytest.fixture(scope="module")
def quickly() -> Iterator[None]:
    """Indices of few iterations at once, so that blocks end within a run; no TensorBoard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "BLOCK", 4)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield
