"""What the commands that train have in common: processes of ``torchrun``, and how to resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from efdm.apps.cli.printing import console, messages
from efdm.training.distributed import process_group, processes
from efdm.training.folder import CHECKPOINT


@contextmanager
def joined_processes(device: str | None) -> Iterator[str | None]:
    """Join the processes of ``torchrun`` and yield the device of this one. Only the first process prints.

    A single process yields ``device`` itself.
    """
    with process_group(device or "") as own:
        rank, world = processes()
        console.quiet = messages.quiet = rank > 0
        try:
            yield str(own) if world > 1 else device
        finally:
            console.quiet = messages.quiet = False  # errors are printed by the process in which they occur


def resume_hint(out: Path) -> str:
    """Return a message that says how to continue the interrupted run in ``out``."""
    if not (out / CHECKPOINT).exists():
        return "interrupted before the first step; repeat the command without --resume"
    return "interrupted; repeat the command with --resume to continue"
