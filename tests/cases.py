"""Named test cases. ``rows(name, dtype, device)`` returns content and style of shape (3, n)."""

import math

import torch
from torch import Tensor

WORKED_X = [0.0, 0.1, 0.0, 0.2, 0.1]
WORKED_Y = [0.1, 0.0, 0.4, 0.3, 0.5]


def _normal(n: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(n)
    return torch.randn(3, n, generator=g), torch.randn(3, n, generator=g) * 2 + 1


def _with(values: list[float]) -> tuple[Tensor, Tensor]:
    """Return normal rows in which ``values`` replace some elements, at different positions in content and style."""
    x, y = _normal(97)
    for i, v in enumerate(values):
        x[:, 7 * i + 1] = v
        y[:, 5 * i + 2] = v
    return x, y


def _scaled(scale: float) -> tuple[Tensor, Tensor]:
    x, y = _normal(65)
    return x * scale, y * scale


CASES = {
    "worked_example": lambda: (torch.tensor([WORKED_X] * 3), torch.tensor([WORKED_Y] * 3)),
    "one_value": lambda: _normal(1),
    "two_values": lambda: _normal(2),
    "three_values": lambda: _normal(3),
    "shorter_than_two_warps": lambda: _normal(63),
    "shortest_radix_sort_of_halves": lambda: _normal(129),
    "longest_network": lambda: _normal(800),
    "shortest_radix_sort": lambda: _normal(801),
    "odd_length": lambda: _normal(1001),
    "block_of_256_threads": lambda: _normal(4096),
    "block_of_512_threads": lambda: _normal(4097),
    "largest_block": lambda: _normal(16_384),
    "two_chunks": lambda: _normal(16_385),
    "resnet_layer1": lambda: _normal(3136),
    "all_equal": lambda: (torch.full((3, 50), 0.25), _normal(50)[1]),
    "style_all_equal": lambda: (_normal(50)[0], torch.full((3, 50), -3.0)),
    "after_relu": lambda: tuple(t.relu() for t in _normal(1000)),
    "few_levels": lambda: tuple((t * 2).round() for t in _normal(500)),
    "both_zeros": lambda: _with([0.0, -0.0, 0.0, -0.0]),
    "infinities": lambda: _with([math.inf, -math.inf, math.inf]),
    "nan": lambda: _with([math.nan, -math.nan, math.nan, math.inf]),
    "huge": lambda: _scaled(1e4),
    "tiny": lambda: _scaled(1e-6),
    "ascending": lambda: tuple(t.sort().values for t in _normal(200)),
    "descending": lambda: tuple(t.sort(descending=True).values for t in _normal(200)),
}


def rows(name: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    x, y = CASES[name]()
    return x.to(device, dtype), y.to(device, dtype)
