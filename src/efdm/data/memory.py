"""Check that data fit into the free memory before they are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import torch

from efdm.errors import SettingError


class Remedy(NamedTuple):
    """Advice on using less memory, and the settings that it mentions."""

    words: str
    settings: tuple[str, ...]


SMALLER = Remedy("a smaller size", ("size",))
FEWER = Remedy("a smaller size or fewer pictures", ("size",))
STREAM = Remedy("a smaller size, fewer pictures, or storage='stream'", ("size", "storage"))
# folder, limit and usage of a container: cgroup v2, cgroup v1
CONTAINERS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def check_memory(needed: int, what: str, device: torch.device | str = "cpu", *, remedy: Remedy = FEWER) -> None:
    """Raise `SettingError` if ``needed`` bytes for ``what``, such as "9991 pictures", are not free on a device."""
    free = available_memory(device)
    if free is not None and needed > free:
        where = torch.device(device).type.replace("cuda", "GPU").replace("cpu", "main")
        message = f"{what} need {_gigabytes(needed)} of {where} memory, but {_gigabytes(free)} are free"
        raise SettingError(f"{message}; use {remedy.words}", remedy.settings)


def _gigabytes(count: int) -> str:
    """Return a number of bytes in GB, with at least three digits and no exponent."""
    return f"{count / 1e9:,.0f} GB" if count >= 1e11 else f"{count / 1e9:.3g} GB"


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
    machine = _read_number("/proc/meminfo", r"MemAvailable:\s*(\d+)")
    limits = [_total_memory() if machine is None else machine * 1024]
    for folder, limit, usage in CONTAINERS:
        # a limit of "max" does not match
        most, used = (_read_number(f"{folder}/{file}", r"(\d+)") for file in (limit, usage))
        if most is not None and used is not None:
            limits.append(max(0, most - used + (_read_number(f"{folder}/memory.stat", r"inactive_file (\d+)") or 0)))
    return min((free for free in limits if free is not None), default=None)


def _total_memory() -> int | None:
    try:  # macOS: all memory of the machine, free or not
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _read_number(file: str, pattern: str) -> int | None:
    """Return the first number in a file that matches the group of ``pattern``, or None."""
    try:
        match = re.search(pattern, Path(file).read_text())
    except OSError:
        return None
    return int(match[1]) if match else None
