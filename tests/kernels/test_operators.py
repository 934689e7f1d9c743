from __future__ import annotations

import pytest
import torch

from efdm import kernels  # noqa: F401  registers the operators

OPERATORS = {
    "sort_match": lambda x, y: (x, y),
    "match_sorted": lambda x, y: (x, y.sort(-1).values),
    "sort_rows": lambda x, y: (y,),
    "sort_rank": lambda x, y: (x,),
    "straight_through": lambda x, y: (x.requires_grad_(), y.requires_grad_()),
    "take": lambda x, y: (y, torch.argsort(x).to(torch.int32)),
    "mix_partners": lambda x, y: (
        x,
        torch.arange(x.shape[0], device=x.device).flip(0),
        torch.linspace(0, 1, x.shape[0], device=x.device),
    ),
}


@pytest.mark.parametrize("layout", ["contiguous", "strided", "channels last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name: str, dtype: torch.dtype, layout: str, device: torch.device) -> None:
    x, y = torch.randn(2, 3, 17, device=device, dtype=dtype), torch.randn(2, 3, 17, device=device, dtype=dtype)
    if layout == "strided":
        x = x.transpose(0, 1)
        y = y.transpose(0, 1)
    if layout == "channels last":
        x, y = x.mT.contiguous().mT, y.mT.contiguous().mT
    torch.library.opcheck(getattr(torch.ops.efdm, name), OPERATORS[name](x, y))
