"""The device that a user names, tried before anything is read."""

from __future__ import annotations

import torch


def pick_device(name: str = "") -> torch.device:
    """The device of ``--device``: as torch writes it ("cpu", "cuda:1"), and without a name the GPU if there is one."""
    wanted = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.zeros(1, device=device).item()  # "meta" can hold tensors, but no values
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device {wanted} cannot be used here; try --device cpu") from error
    return device
