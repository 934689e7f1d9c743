from __future__ import annotations

import pytest
import torch

from efdm.training import PRECISIONS, autocast


@pytest.mark.parametrize("precision", PRECISIONS)
def test_layers_compute_in_the_precision_with_float32_weights(precision: str) -> None:
    layer = torch.nn.Linear(3, 2)
    with autocast(torch.device("cpu"), precision):
        assert layer(torch.ones(1, 3)).dtype == PRECISIONS[precision]
        assert not torch.is_autocast_cache_enabled()
    assert layer.weight.dtype == torch.float32
