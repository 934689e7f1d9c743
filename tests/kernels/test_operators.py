from __future__ import annotations

import pytest
import torch

from efdm import kernels

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


@pytest.mark.parametrize("n", [17, 600])
@pytest.mark.parametrize("other", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_types_are_refused_and_not_read_as_if_they_were_the_same(other: torch.dtype, n: int) -> None:
    x = torch.randn(2, 3, n)
    for name, second in (("sort_match", x.to(other)), ("match_sorted", x.to(other)), ("take", torch.argsort(x))):
        with pytest.raises(ValueError, match=rf"{name} of torch.float32 needs .* got {second.dtype}; convert it"):
            getattr(kernels, name)(x, second)
        with pytest.raises(ValueError, match="needs a second argument"):
            getattr(torch.ops.efdm, name)(x, second)


def test_other_devices_are_refused() -> None:
    x = torch.randn(2, 3, 17)
    with pytest.raises(ValueError, match=r"\['cpu', 'meta'\] together; move all to one"):
        kernels.sort_match(x, x.to("meta"))
