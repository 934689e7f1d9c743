"""Training of classifiers, one or several side by side on one GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from efdm.data.domains import DomainSet
from efdm.dg.run import DONE, Progress, Tell, Trained, training
from efdm.dg.settings import Settings, check, identity, resolved
from efdm.training.device import check_device
from efdm.training.folder import check_folder
from efdm.training.lanes import Work, side_by_side

__all__ = ["Progress", "Settings", "Trained", "train", "train_together"]


def train(
    settings: Settings,
    data: DomainSet,
    folder: Path | None = None,
    *,
    resume: bool = False,
    progress: Tell = lambda _: None,
) -> Trained:
    """Train a classifier; leave it, its records and its log in ``folder``, if one is given.

    A run that was interrupted (by Ctrl-C or SIGTERM, which save it, or worse) goes on from its last checkpoint with
    ``resume=True``, with the settings it began with, and on a CPU its losses are, to the last bit, those it would have had
    without the interruption. It may go on on another device; CPUs and GPUs draw other numbers, and its records then name
    both.

    A record's ``seconds`` are of training steps alone, without set-up, compiling, evaluations and files.
    """
    settings = resolved(settings)
    check(settings)
    check_device(settings.device)
    if folder is not None:
        check_run_folder(folder, resume=resume)
    elif resume:
        raise ValueError("a run without a folder has no checkpoint to resume from; give its folder")
    made: list[Trained] = []
    run = training(settings, _on_device(data, settings.device), folder, lanes=1, progress=progress)
    side_by_side([run], device=torch.device(settings.device), lanes=1, finished=made.append)
    return made[0]


def check_run_folder(folder: Path, *, resume: bool) -> None:
    """Raise for a folder in which a training can neither begin nor go on."""
    if (folder / DONE).exists():
        raise ValueError(f"{folder} has a finished run; choose another folder")
    check_folder(folder, resume=resume)


def train_together(
    runs: Sequence[Settings],
    data: DomainSet,
    folder: Path | None = None,
    *,
    lanes: int = 1,
    progress: Tell = lambda _: None,
    finished: Callable[[Trained], None] = lambda _: None,
) -> None:
    """Train several, ``lanes`` of them side by side on one GPU; on a CPU one after the other. ``finished`` is told of each.

    Each has a folder of its own in ``folder``, named by its identity. What was interrupted goes on there, and what was
    finished is read and told of without being trained again. One whose loss explodes does not keep the others from their
    end; a FloatingPointError names it afterwards, and another go tries it again. When one fails otherwise, the others are
    saved and all stop.

    With several lanes a record's ``seconds`` are not those of the run alone: the device is shared, and while one lane is
    set up or evaluated, the clocks of the others go on. Records tell the number of lanes.
    """
    if not runs:
        return
    runs = [resolved(settings) for settings in runs]
    for settings in runs:
        check(settings)
    names = [identity(settings) for settings in runs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{len(twice)} of these runs are there twice, for example {min(twice)}; give each of them once")
    if len(devices := {settings.device for settings in runs}) > 1:
        raise ValueError(f"runs side by side share one device, these want {', '.join(sorted(devices))}; train them apart")
    check_device(runs[0].device)
    device = torch.device(runs[0].device)
    lanes = min(lanes, len(runs)) if device.type == "cuda" else 1
    pictures = _on_device(data, device)
    exploded: list[str] = []
    works = (
        _unless_it_explodes(
            training(settings, pictures, None if folder is None else folder / name, lanes=lanes, progress=progress), exploded
        )
        for settings, name in zip(runs, names, strict=True)
    )
    side_by_side(works, device=device, lanes=lanes, finished=lambda made: None if made is None else finished(made))
    raise_exploded(exploded, len(runs))


def raise_exploded(told: Sequence[str], runs: int) -> None:
    """When all others have come to their end: raise if there is anything to tell of exploded ones."""
    if told:
        raise FloatingPointError(f"{len(told)} of {runs} runs came to no end, all others did: {'; '.join(told)}")


def _unless_it_explodes(work: Work[Trained], exploded: list[str]) -> Work[Trained | None]:
    try:
        return (yield from work)
    except FloatingPointError as error:
        exploded.append(str(error))  # not the error itself, which would keep the run and its memory
        return None


def _on_device(data: DomainSet, device: str | torch.device) -> DomainSet:
    moved = data.to(device)
    if moved.images.device.type == "cuda":
        torch.cuda.synchronize(moved.images.device)  # the runs' own streams do not wait for the one that copied
    return moved
