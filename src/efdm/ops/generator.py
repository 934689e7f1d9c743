"""Random number generators."""

from __future__ import annotations

from typing import Any

import torch


def generator_kwargs(generator: torch.Generator | None) -> dict[str, Any]:
    """Return ``generator`` as keyword arguments for a random function of torch.

    None becomes no argument, because ``generator=None`` selects an overload that cannot be compiled with dynamic shapes.
    """
    return {} if generator is None else {"generator": generator}


def default_generator(device: torch.device) -> torch.Generator:
    """Return torch's default generator of the device."""
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
