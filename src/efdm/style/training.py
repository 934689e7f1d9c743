"""Training of style-transfer networks: random crops, the objectives of a network, previews."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.data import Crops, ImageSet, draw_crops, take_crops, write_picture
from efdm.data.folders import without_folders
from efdm.data.sheets import sheet
from efdm.models import NETWORKS, StyleNetwork, build
from efdm.models.weights import load_network, load_normalized_encoder, save_network
from efdm.nn.losses import random_directions
from efdm.progress import Progress, Report, ignore
from efdm.style.objective import DIRECTIONS, OBJECTIVES
from efdm.style.pipeline import transfer
from efdm.style.settings import Settings, check
from efdm.training import autocast, weights_dtype
from efdm.training.device import check_device
from efdm.training.distributed import check_divisible, processes
from efdm.training.files import Record
from efdm.training.fit import Phase, Status, Task, fit
from efdm.training.folder import check_folder
from efdm.training.lanes import Work
from efdm.training.settings import public
from efdm.training.step import Step

Batch = tuple[Tensor, ...]
SECONDS = 1.0  # between two reports
BLOCK = 64  # iterations whose random numbers are drawn together
SLICED_CHANNELS = (256, 512)  # channels at the taps of the sliced loss


def train(settings: Settings, folder: Path, *, resume: bool = False, progress: Report = ignore) -> StyleNetwork:
    """Train a network and write it, with its log and previews, to ``folder``.

    A run that was interrupted, by Ctrl-C, SIGTERM or ``kill -9``, continues from its last checkpoint with ``resume=True``
    and the same settings, and its losses are those of an uninterrupted run. Only the paths of files, the device and the
    speed may differ.
    """
    check(settings)
    check_device(settings.device)
    check_folder(folder, resume=resume)
    pulse = Pulse(progress)
    return fit(StyleTask(settings, folder, resume, pulse), folder, resume=resume, progress=pulse)


class Pulse:
    """A progress callback that also reports iterations between log entries, at most once every `SECONDS`."""

    def __init__(self, report: Report) -> None:
        self.report, self._last, self._time = report, Progress("", 0, 0), -math.inf

    def __call__(self, progress: Progress) -> None:
        self._last, self._time = progress, time.monotonic()
        self.report(progress)

    def count(self, batches: Callable[[int], Iterable[Batch]], label: str, total: int, start: int) -> Iterator[Batch]:
        """Yield the batches from iteration ``start`` on, and report each iteration that begins."""
        for iteration, batch in enumerate(batches(start), start):
            if time.monotonic() - self._time >= SECONDS:
                self(Progress(label, iteration, total, self._last.values if self._last.label == label else {}))
            yield batch


def make_network(settings: Settings) -> StyleNetwork:
    """Return the network that a run starts from."""
    torch.manual_seed(settings.seed)
    network = build(settings.encoder)
    if NETWORKS[settings.encoder].encoder:  # frozen, with separate weights
        load_normalized_encoder(network.stages[0], path=settings.vgg or None)  # type: ignore[arg-type]
    if settings.start:
        load_network(network, settings.start)
    return network


class CropPairs:
    """Random crops of contents and styles. The crops of an iteration do not depend on where the run was started."""

    def __init__(self, contents: ImageSet, styles: ImageSet, settings: Settings) -> None:
        self.settings, self.device = settings, torch.device(settings.device)
        self.sets = [images.to(self.device) for images in (contents, styles)]
        self.sizes = [images.sizes for images in (contents, styles)]
        self.rank, self.world = processes()
        check_divisible(settings.batch)

    def batches(self, stream: int, start: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield uint8 contents and styles and random directions from iteration ``start`` on. Each phase has a ``stream``."""
        for iteration in count(start):
            block, inside = divmod(iteration, BLOCK)
            if inside == 0 or iteration == start:
                draws = self._draw(stream, block)
            *crops, directions = draws[inside]
            content, style = (take_crops(s, c, self.settings.size) for s, c in zip(self.sets, crops, strict=True))
            yield content, style, *directions

    def _draw(self, stream: int, block: int) -> list[Any]:
        generator = torch.Generator().manual_seed((self.settings.seed * 16 + stream) * 10_000_000 + block)
        batch, share = self.settings.batch, self.settings.batch // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        drawn = []
        for sizes in self.sizes:
            which = torch.randint(len(sizes), (BLOCK * batch,), generator=generator)
            crops = draw_crops(sizes, which, self.settings.size, generator)
            parts = [t.view(BLOCK, batch)[:, mine].to(self.device).unbind(0) for t in crops]
            drawn.append([Crops(*tensors) for tensors in zip(*parts, strict=True)])
        directions: list[list[Tensor]] = [[] for _ in range(BLOCK)]
        if self.settings.sliced_weight:
            local = torch.Generator(self.device).manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
            directions = [[random_directions(DIRECTIONS, c, local) for c in SLICED_CHANNELS] for _ in range(BLOCK)]
        return list(zip(*drawn, directions, strict=True))


class StyleTask(Task[StyleNetwork]):
    """Train a style-transfer network with the objectives of its row in `NETWORKS`."""

    def __init__(self, settings: Settings, folder: Path, resume: bool, pulse: Pulse) -> None:
        self.settings: Settings = settings
        self.folder, self.pulse = folder, pulse
        self.device, self.first = torch.device(settings.device), processes()[0] == 0
        # a checkpoint contains all weights, and the file that the run started from may no longer exist
        self.network = make_network(dataclasses.replace(settings, start="") if resume else settings).to(self.device)
        # before the pictures, so that a missing VGG is reported at once
        self.objectives = OBJECTIVES[NETWORKS[settings.encoder].objective](self.network, settings, self.device)
        load = partial(ImageSet.load, short_side=settings.short_side, progress=pulse.report)
        self.contents, self.styles = load(settings.content), load(settings.style)
        self.crops = CropPairs(self.contents, self.styles, settings)

    def phases(self) -> list[Phase]:
        iterations = {"reconstruct": self.settings.reconstruct, "style": self.settings.iterations}
        phases = []
        for stream, (name, objective) in enumerate(self.objectives.items()):
            start, ema = (self.settings.start_iteration, self.settings.ema_decay) if name == "style" else (0, 0.0)
            step = partial(make_step, objective, self.network, self.settings, ema_decay=ema)
            batches = partial(self.pulse.count, partial(self.crops.batches, stream), name, iterations[name])
            phases.append(Phase(name, iterations[name], step, batches, start))
        return phases

    def fingerprint(self) -> str:
        return f"{self.contents.fingerprint()} {self.styles.fingerprint()}"

    def environment(self) -> Record:
        sets = {"content": self.contents, "style": self.styles}
        skipped = [
            f"{role}: {Path(getattr(self.settings, role)).resolve().name}/{reason}"
            for role, images in sets.items()
            for _, reason in without_folders(images.skipped)
        ]
        return {**super().environment(), "contents": len(self.contents), "styles": len(self.styles), "skipped": skipped}

    def is_due(self, phase: Phase, iteration: int) -> bool:
        every = self.settings.preview_every
        return every > 0 and iteration > phase.start_iteration and iteration % every == 0

    def evaluate(self, status: Status) -> Work[None]:
        self._preview(f"{status.phase.name}-{status.iteration:07d}")
        yield

    def _preview(self, name: str) -> None:
        if self.first and self.settings.preview_every:
            write_picture(self.folder / "previews" / f"{name}.jpg", preview(self.network, self.contents, self.styles))

    def finish(self) -> StyleNetwork:
        if self.first:
            save_network(self.network, self.folder / "network.safetensors", public(self.settings))
            self._preview("final")
        return self.network


@torch.no_grad()
def preview(network: StyleNetwork, contents: ImageSet, styles: ImageSet) -> Tensor:
    """Return a sheet of the first contents in the first styles."""
    weight = next(network.parameters())
    down, across = ([image.to(weight)[None] / 255 for image in s.images[:n]] for s, n in ((contents, 4), (styles, 5)))
    rows: list[list[Tensor | None]] = [[None, *(style[0] for style in across)]]
    for content in down:
        outputs = (transfer(network, content, network.features(style)).clamp(0, 1)[0] for style in across)
        rows.append([content[0], *outputs])
    return sheet(rows, cell=224)


def make_step(objective: nn.Module, network: StyleNetwork, settings: Settings, *, ema_decay: float = 0.0) -> Step:
    """Return a step that trains the modules of ``objective.trained()`` and freezes all others."""
    device = torch.device(settings.device)
    dtype = weights_dtype(settings.precision)
    objective.to(device, dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    objective.requires_grad_(False)
    for module in objective.trained():  # type: ignore[operator]
        module.requires_grad_(True)
    forward = _compiled(objective) if "compile" in settings.speed else objective

    def losses(content: Tensor, style: Tensor, *directions: Tensor) -> dict[str, Tensor]:
        images = [i.to(dtype).div(255).contiguous(memory_format=torch.channels_last) for i in (content, style)]
        with autocast(device, settings.precision):
            return forward(*images, list(directions))  # type: ignore[no-any-return]

    heads = {"heads": objective.heads} if hasattr(objective, "heads") else {}
    return Step(
        losses, {"network": network, **heads}, device=device, lr=settings.lr, weight_decay=settings.weight_decay,  # type: ignore[dict-item]
        max_grad_norm=settings.max_grad_norm or torch.inf, ema_decay=ema_decay, speed=settings.speed,
    )  # fmt: skip


def _compiled(objective: nn.Module) -> nn.Module:
    """Compile an objective, or only its teacher, which takes most of the time; the rest takes long to compile."""
    teacher = getattr(objective, "teacher", None)
    if teacher is None:
        return torch.compile(objective)  # type: ignore[return-value]
    teacher.compile(dynamic=False)
    return objective
