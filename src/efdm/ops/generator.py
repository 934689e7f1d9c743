"""Generators: passing one on, and torch's own."""

from __future__ import annotations

from typing import Any

import torch


def generator_kwargs(generator: torch.Generator | None) -> dict[str, Any]:
    """Keyword arguments for torch's random functions: ``generator=None`` would choose an overload that compilers cannot use
    with changing sizes, so nothing is passed instead."""
    return {} if generator is None else {"generator": generator}


def default_generator(device: torch.device) -> torch.Generator:
    """The one that is used on a device where no other is named."""
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
