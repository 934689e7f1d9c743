"""Tolerances (relative, absolute) by dtype, for computed results. Moved values must be exactly equal."""

import torch

COMPUTED = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
DTYPES = tuple(COMPUTED)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that two tensors agree within the tolerance of the first one's dtype."""
    relative, absolute = COMPUTED[actual.dtype]
    torch.testing.assert_close(actual.double(), expected.double(), rtol=relative, atol=absolute, equal_nan=True)
