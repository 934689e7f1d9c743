"""Passing a generator on."""

from __future__ import annotations

from typing import Any

import torch


def given(generator: torch.Generator | None) -> dict[str, Any]:
    """Keyword arguments for torch's random functions: ``generator=None`` would choose an overload that compilers cannot use
    with changing sizes, so nothing is passed instead."""
    return {} if generator is None else {"generator": generator}
