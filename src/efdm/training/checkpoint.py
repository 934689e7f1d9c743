"""The state of a training in one file: written whole or not at all, and only while its numbers are finite. And the folder
of a run: whether one can begin there, and that nobody else does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.files import atomic_write

SECONDS = 300.0  # a checkpoint is never older than this and one step: what a machine that stops without a word may cost
LOCK = "lock"  # in a folder while somebody works there; the number of the process
OF_THE_DEVICE = ("lr", "fused", "capturable")  # options of an optimizer that a run on another device does not take over


def check_finite(content: Mapping[str, Any], when: str) -> None:
    """Raise for weights that must not take the place of good ones; ``when`` is told."""
    if not all(bool(tensor.isfinite().all()) for tensor in _tensors(content)):
        raise FloatingPointError(f"the weights are no longer finite at {when}, and were not saved; try a lower --lr")


def write(content: Mapping[str, Any], path: Path) -> None:
    with atomic_write(path) as file:
        torch.save(content, file)


def restore_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Fill an optimizer from the ``state_dict`` of another, which may have been on another device."""
    # before it is loaded: they decide where the optimizer keeps its count of steps
    own = [{name: group[name] for name in OF_THE_DEVICE if name in group} for group in optimizer.param_groups]
    groups = [{**theirs, **mine} for theirs, mine in zip(state["param_groups"], own, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """In place where the rate is a tensor: a recorded graph reads it there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def check_folder(run: Path, *, resume: bool) -> None:
    """Raise for a folder in which a run can neither begin nor go on, or where somebody is at work."""
    if run.is_file():
        raise ValueError(f"{run} is a file; choose a folder for the run")
    check_alone(run)
    begun = (run / "checkpoint.pt").exists()
    if resume and not begun:
        raise ValueError(f"{run} has no checkpoint to resume from; leave --resume out to begin a run")
    if not resume and begun:
        raise ValueError(f"{run} has a run already; resume it (--resume, in Python resume=True), or choose another folder")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in a folder, which is made, and be the only one there: a ValueError tells whoever comes second.

    The system forgets the lock of a process that has ended, however it ended. Where there are no locks, all may come in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path = folder / LOCK
    with path.open("a+") as file:
        free = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.path.samestat(os.fstat(file.fileno()), path.stat())  # else somebody left just now, with the file
        except (BlockingIOError, FileNotFoundError):
            free = False
        except OSError:  # a file system without locks
            pass
        if not free:
            file.seek(0)
            who = f"process {told}" if (told := file.read()) else "another process"
            raise ValueError(f"{who} is at work in {folder}; wait until it has ended, or choose another folder")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def check_alone(folder: Path) -> None:
    """Raise where somebody is at work, before pictures are read for a folder. Makes nothing."""
    if (folder / LOCK).exists():
        with alone_in(folder):
            pass


def _tensors(content: object) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for part in content.values() if isinstance(content, Mapping) else content:
            yield from _tensors(part)
