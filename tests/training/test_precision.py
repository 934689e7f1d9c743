from __future__ import annotations

import pytest
import torch

from efdm.training import PRECISIONS, autocast, weights_dtype


@pytest.mark.parametrize("precision", PRECISIONS)
def test_layers_compute_in_the_precision(precision: str) -> None:
    dtype = weights_dtype(precision)
    layer = torch.nn.Linear(3, 2, dtype=dtype)
    with autocast(torch.device("cpu"), precision):
        assert layer(torch.ones(1, 3, dtype=dtype)).dtype == PRECISIONS[precision]
        assert not torch.is_autocast_cache_enabled()
    assert (dtype == torch.float64) == (precision == "fp64")
