from __future__ import annotations

import os

import pytest
import torch

if os.environ.get("EFDM_CHECK_SHAPES"):  # see ops/test_shapes.py: every annotated shape is checked at run time
    from jaxtyping import install_import_hook

    install_import_hook("efdm.ops", "beartype.beartype")

from efdm.models import allow_torchvision

allow_torchvision()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
