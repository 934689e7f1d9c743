from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from training import noise_pictures, vgg_file

from efdm.style import training
from efdm.style.stylizer import Stylizer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four contents, three styles and a VGG with random weights."""
    folder = tmp_path_factory.mktemp("training")
    noise_pictures(folder / "content", 4, seed=1)
    noise_pictures(folder / "style", 3, seed=2)
    vgg_file(folder)
    return folder


@pytest.fixture(scope="module")
def quickly() -> Iterator[None]:
    """Draw few iterations at a time, so that a run has several blocks; disable TensorBoard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BLOCK", 2)
        patch.setattr(training, "SECONDS", math.inf)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield


@pytest.fixture(scope="module")
def stylizer() -> Stylizer:
    """A stylizer whose network has random weights in all layers."""
    from style.test_tiles import randomized

    torch.manual_seed(0)
    return Stylizer(randomized("small", torch.float32), "cpu")
