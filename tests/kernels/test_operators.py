"""The kernels as torch operators, and the validation of their arguments."""

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
    "tolerant_match": lambda x, y: (x, y.sort(-1).values, 0.1),
    "tolerant_values": lambda x, y: (x.sort(-1).values, y.sort(-1).values, 0.1),
    "quantile_values": lambda x, y: (x.sort(-1).values, y.sort(-1).values),
    "mix_partners": lambda x, y: (
        x,
        torch.arange(x.shape[0], device=x.device).flip(0),
        torch.linspace(0, 1, x.shape[0], device=x.device),
    ),
}
OPERATORS["mix_order"] = lambda x, y: (x.requires_grad_(), *OPERATORS["mix_partners"](x, y)[1:])
OPERATORS["mix_backward"] = lambda x, y: (y, torch.argsort(x).to(torch.int16), *OPERATORS["mix_partners"](x, y)[1:])
OPERATORS["combine_order"] = lambda x, y: (x.requires_grad_(), torch.rand(x.shape[0], x.shape[0], device=x.device))
OPERATORS["combine_backward"] = lambda x, y: (
    y,
    torch.argsort(x).to(torch.int16),
    torch.rand(x.shape[1], x.shape[0], x.shape[0], device=x.device),
)
LAYOUTS = {
    "contiguous": (torch.float32, lambda t: t),
    "strided": (torch.float64, lambda t: t.transpose(0, 1)),
    "channels_last": (torch.bfloat16, lambda t: t.mT.contiguous().mT),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name: str, device: torch.device) -> None:
    for dtype, layout in LAYOUTS.values():
        x, y = (layout(torch.randn(2, 3, 17, device=device, dtype=dtype)) for _ in range(2))
        torch.library.opcheck(getattr(torch.ops.efdm, name), OPERATORS[name](x, y))


@pytest.mark.parametrize("other", [torch.float16, torch.float64], ids=str)
def test_mismatched_dtypes(other: torch.dtype) -> None:
    x = torch.randn(2, 3, 17)
    for name, second in (("sort_match", x.to(other)), ("match_sorted", x.to(other)), ("take", torch.argsort(x))):
        for function in (getattr(kernels, name), getattr(torch.ops.efdm, name)):
            with pytest.raises(ValueError, match=rf"{name} of torch.float32 .* got {second.dtype}"):
                function(x, second)


def test_mismatched_shapes_and_devices() -> None:
    x, partner = torch.randn(2, 3, 17), torch.tensor([1, 0])
    with pytest.raises(ValueError, match=r"\(2, 3, 17\), \(2, 3, 9\)"):
        kernels.sort_match(x, x[..., :9])
    order = kernels.mix_order(x, partner, torch.rand(2))[1]
    for wrong in ((x[..., :9], order, partner), (x, order, partner[:1])):
        with pytest.raises(ValueError, match=r"mix_backward .*\(2, 3, 17\)"):
            kernels.mix_backward(*wrong, torch.rand(2))
    with pytest.raises(ValueError, match=r"combine_order .*\(2, 3, 17\), \(3, 3\)"):
        kernels.combine_order(x, torch.rand(3, 3))
    with pytest.raises(ValueError, match=r"\['cpu', 'meta'\]"):
        kernels.sort_match(x, x.to("meta"))
