from __future__ import annotations

import pytest
import torch

from efdm.training import PRECISIONS, autocast


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_layer_computes_in_the_type_and_keeps_its_weights(precision: str) -> None:
    layer = torch.nn.Linear(3, 2)
    with autocast(torch.device("cpu"), precision):
        assert layer(torch.ones(1, 3)).dtype == PRECISIONS[precision]
        assert not torch.is_autocast_cache_enabled()
    assert layer.weight.dtype == torch.float32
