from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from efdm.recognition import training


@pytest.fixture(scope="module")
def quickly() -> Iterator[None]:
    """Move indices of few iterations at a time, so that a run has several blocks; disable TensorBoard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BLOCK", 4)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield
