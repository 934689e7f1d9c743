"""What the commands that train have in common: processes of ``torchrun``, and how to resume."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
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


def resume_hint(command: str, out: Path, **options: Sequence[object]) -> str:
    """Return a message with the command that resumes the run in ``out``. ``options`` are the values of its other options."""
    if not (out / CHECKPOINT).exists():
        return "interrupted before the first step; repeat the command without --resume"
    words = [str(word) for name, values in options.items() for value in values for word in (f"--{name}", value)]
    return f"interrupted; resume with: efdm {command} {shlex.join(['--resume', *words, '-o', str(out)])}"
