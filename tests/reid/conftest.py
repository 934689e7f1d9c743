import pytest
import torch

from efdm.models.backbones import build_backbone


@pytest.fixture(scope="session")
def model() -> torch.nn.Module:
    """Return a small network in eval mode. Do not modify it."""
    torch.manual_seed(0)
    return build_backbone("tiny", 5).eval()
