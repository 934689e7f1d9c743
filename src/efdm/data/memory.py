"""The memory that a data set needs and the memory that is free, compared before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from efdm.errors import SettingError

SMALLER = "a smaller size or fewer pictures"
# folder, limit, usage and statistics of a container: cgroup v2, cgroup v1
CONTAINERS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "memory.stat"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
)


def check_memory(needed: int, what: str, device: torch.device | str = "cpu", *, remedy: str = SMALLER) -> None:
    """Raise `SettingError` if ``needed`` bytes for ``what``, such as "9991 pictures", are not free on a device."""
    free = available_memory(device)
    if free is not None and needed > free:
        where = torch.device(device).type.replace("cuda", "GPU").replace("cpu", "main")
        message = f"{what} need {needed / 1e9:.3g} GB of {where} memory, but {free / 1e9:.3g} GB are free"
        raise SettingError(f"{message}; use {remedy}", "size")


def available_memory(device: torch.device | str = "cpu") -> int | None:
    """Return the number of free bytes on a device, within the limit of a container, or None if it is unknown.

    Memory that files occupy as a cache counts as free.
    """
    device = torch.device(device)
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    if device.type != "cpu":
        return None
    found = [_free_in_machine(), *(_free_in_container(*files) for files in CONTAINERS)]
    return min((free for free in found if free is not None), default=None)


def _free_in_machine() -> int | None:
    if (free := _entry("/proc/meminfo", "MemAvailable:")) is not None:
        return free * 1024
    try:  # macOS: all memory of the machine, free or not
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _free_in_container(folder: str, limit: str, usage: str, statistics: str) -> int | None:
    try:
        most, used = (int(Path(folder, file).read_text()) for file in (limit, usage))
    except (OSError, ValueError):  # no container, or "max"
        return None
    return max(0, most - used + (_entry(f"{folder}/{statistics}", "inactive_file") or 0))


def _entry(file: str, name: str) -> int | None:
    """Return the number in the line of a file that starts with ``name``, or None."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), None)
