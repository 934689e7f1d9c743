"""The device that a user names, tried before anything is read."""

from __future__ import annotations

import torch

from efdm.training.device import check_device, default_device


def pick_device(name: str = "") -> torch.device:
    """The device of ``--device``: as torch writes it ("cpu", "cuda:1"), and without a name the GPU if there is one."""
    wanted = name or default_device()
    try:
        check_device(wanted)
    except ValueError as error:
        raise ValueError(f"--device {wanted} cannot be used here; try --device cpu") from error
    return torch.device(wanted)
