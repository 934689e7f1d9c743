import pytest
import torch

from efdm.style.stylizer import Stylizer


@pytest.fixture(scope="module")
def stylizer() -> Stylizer:
    """A stylizer whose network has random weights in all layers."""
    from style.test_tiles import randomized

    torch.manual_seed(0)
    return Stylizer(randomized("small", torch.float32), "cpu")
