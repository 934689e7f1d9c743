"""Training of style-transfer networks: data held on the device, one step after another, records, previews, resuming."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from efdm.data import Crops, ImageSet, draw_crops, take_crops
from efdm.environment import environment
from efdm.models import StyleNetwork, build
from efdm.models.weights import load_encoder, load_network, load_normalised_encoder, save_network
from efdm.nn.losses import random_directions
from efdm.progress import Report, ignore
from efdm.style.checkpoint import checkpoint, restore
from efdm.style.objective import DIRECTIONS, PaperObjective, ReconstructionObjective, SmallObjective
from efdm.style.records import preview
from efdm.style.settings import IDENTITIES, SCHEDULES, Settings, check, check_same_run, public
from efdm.style.step import Step, averaged, processes
from efdm.training.checkpoint import SECONDS, check_finite, write
from efdm.training.device import check_device
from efdm.training.files import write_json
from efdm.training.folder import check_folder
from efdm.training.interrupt import stoppable, unbroken
from efdm.training.log import Log
from efdm.training.settings import FILE

__all__ = ["SCHEDULES", "Batches", "Phase", "Progress", "Settings", "make_network", "phases", "train"]

PHASES = ("reconstruct", "style")  # in the order they are run
BLOCK = 64  # iterations whose random draws are made at once
SLICED_CHANNELS = (256, 512)  # of the taps that have random directions


class Phase(NamedTuple):
    """A part of a run with its own objective."""

    name: str
    objective: nn.Module
    iterations: int


class Progress(NamedTuple):
    """What is told after a while of training."""

    phase: str
    iteration: int
    iterations: int
    losses: dict[str, float]
    per_second: float


class Batches:
    """Crops of contents and styles, the same for the same seed and iteration, wherever a run begins."""

    def __init__(self, content: ImageSet, style: ImageSet, settings: Settings, device: torch.device) -> None:
        self.packs = [images.pack().to(device) for images in (content, style)]
        self.sizes = [images.sizes for images in (content, style)]
        self.settings, self.device = settings, device
        self.rank, self.world = processes()
        if settings.batch % self.world:
            raise ValueError(f"a batch of {settings.batch} cannot be shared equally by {self.world} processes")
        self._block = (-1, -1)
        self._draws: list[Any] = []

    def __call__(self, iteration: int, stream: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Content and style as uint8, and random directions. ``stream`` keeps phases apart."""
        block, inside = divmod(iteration, BLOCK)
        if (stream, block) != self._block:
            self._block, self._draws = (stream, block), self._draw(stream, block)
        *crops, directions = self._draws[inside]
        content, style = (take_crops(p, c, self.settings.size) for p, c in zip(self.packs, crops, strict=True))
        return content, style, directions

    def _draw(self, stream: int, block: int) -> list[Any]:
        generator = torch.Generator().manual_seed((self.settings.seed * 16 + stream) * 10_000_000 + block)
        count, share = self.settings.batch, self.settings.batch // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        drawn = []
        for sizes in self.sizes:
            which = torch.randint(len(sizes), (BLOCK * count,), generator=generator)
            crops = draw_crops(sizes, which, self.settings.size, generator)
            parts = [t.view(BLOCK, count)[:, mine].to(self.device).unbind(0) for t in crops]
            drawn.append([Crops(*each) for each in zip(*parts, strict=True)])
        directions: list[list[Tensor]] = [[] for _ in range(BLOCK)]
        if self.settings.sliced_weight:
            turn = torch.Generator(self.device).manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
            directions = [[random_directions(DIRECTIONS, c, turn) for c in SLICED_CHANNELS] for _ in range(BLOCK)]
        return list(zip(*drawn, directions, strict=True))


def phases(network: StyleNetwork, settings: Settings, device: torch.device) -> list[Phase]:
    """What is trained after what."""
    if settings.encoder != "small":
        objective = PaperObjective(network, method=settings.method, style_weight=settings.style_weight)
        return [Phase("style", objective, settings.iterations)]
    # as it was trained, with borders of zeros: nothing is decoded from it
    teacher = load_encoder("vgg16", "relu4_3", path=settings.vgg or None, padding="zeros", pooling="floor").to(device)
    rank, world = processes()
    small = SmallObjective(
        network, teacher, method=settings.method, style_weight=settings.style_weight,
        sliced_weight=settings.sliced_weight, identity_weight=settings.identity_weight,
        identities=IDENTITIES if settings.identity_weight and rank == world - 1 else 0, processes=world,
    )  # fmt: skip
    found = [Phase("style", small, settings.iterations)]
    if settings.reconstruct:
        found.insert(0, Phase("reconstruct", ReconstructionObjective(network, teacher), settings.reconstruct))
    return found


def make_network(settings: Settings) -> StyleNetwork:
    torch.manual_seed(settings.seed)  # initial weights
    network = build(settings.encoder)
    if settings.encoder != "small":
        load_normalised_encoder(network.stages[0], path=settings.vgg or None)  # type: ignore[arg-type]
    if settings.start:
        load_network(network, settings.start)
    return network


@dataclass(frozen=True)
class Run:
    """What the phases of a run have in common. Only the ``first`` of several processes writes."""

    settings: Settings
    folder: Path
    device: torch.device
    contents: ImageSet
    styles: ImageSet
    network: StyleNetwork
    progress: Callable[[Progress], None]
    first: bool

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"

    def preview(self, name: str) -> None:
        if self.first and self.settings.preview_every:
            preview(self.network, self.contents, self.styles, self.folder / "previews" / f"{name}.jpg", self.device)


def train(
    settings: Settings,
    run: Path,
    *,
    resume: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
    reading: Report = ignore,
) -> StyleNetwork:
    """Train a network and leave it, with the records of the run, in the folder ``run``.

    A run that was interrupted (by Ctrl-C or SIGTERM, which save it, or worse) goes on from its last checkpoint with
    ``resume=True``, with the settings it began with, and its losses are those it would have had without the interruption.
    Only its files, its device and its speed may be others.
    """
    check(settings)
    check_device(settings.device)
    check_folder(run, resume=resume)
    if resume:
        check_same_run(settings, run)
    job = _open(settings, run, resume, progress, reading)
    batches = Batches(job.contents, job.styles, settings, job.device)
    parts = phases(job.network, settings, job.device)
    state = torch.load(job.checkpoint, map_location=job.device, weights_only=True) if resume else None
    run.mkdir(parents=True, exist_ok=True)
    if job.first and state is None:
        _describe(job)
    keep = (state["phase"], state["iteration"]) if state else None
    with stoppable(), Log(run, phases=PHASES, keep=keep) if job.first else nullcontext() as log:
        for stream, phase in enumerate(parts):
            if state is not None and phase.name != state["phase"]:
                continue  # finished before
            _train_phase(job, phase, partial(batches, stream=stream), state, log)
            state = None
    if job.first:
        save_network(job.network, run / "network.safetensors", public(settings))
        job.preview("final")
        (run / "done").touch()
    return job.network


def _open(
    settings: Settings,
    folder: Path,
    resume: bool,
    progress: Callable[[Progress], None],
    reading: Report,
) -> Run:
    """Read the pictures and make the network."""
    device = torch.device(settings.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    contents = ImageSet.load(settings.content, short_side=settings.short_side, progress=reading)
    styles = ImageSet.load(settings.style, short_side=settings.short_side, progress=reading)
    # a checkpoint holds everything: the file that a run started with may be gone
    network = make_network(dataclasses.replace(settings, start="") if resume else settings).to(device)
    return Run(settings, folder, device, contents, styles, network, progress, first=processes()[0] == 0)


def _describe(run: Run) -> None:
    write_json(run.folder / FILE, dataclasses.asdict(run.settings))
    read = {"content": (run.settings.content, run.contents), "style": (run.settings.style, run.styles)}
    skipped = [f"{role}: {_left_out(s, *what)}" for role, (s, images) in read.items() for what in images.skipped]
    counts = {"contents": len(run.contents), "styles": len(run.styles), "skipped": skipped}
    write_json(run.folder / "environment.json", {**environment(run.device), **counts})


def _left_out(source: str, name: str, why: str) -> str:
    """Which picture of a folder or zip was left out, and why, without where that lies on this machine."""
    place = Path(source)
    known = place.resolve().name
    known = name if name == known else f"{known}/{name}"  # a single picture is its own source
    # a reason begins with the picture as its reader knew it
    for begin in (str(place / name), str(place), name):
        if why.startswith(f"{begin} "):
            return known + why.removeprefix(begin)
    return f"{known}: {why}"


def _train_phase(
    run: Run,
    phase: Phase,
    batch: Callable[[int], tuple[Tensor, Tensor, list[Tensor]]],
    state: Mapping[str, Any] | None,
    log: Log | None,
) -> None:
    """One phase from its beginning, or from the checkpoint ``state``, to its end."""
    settings, styled = run.settings, phase.name == "style"
    step = Step(
        phase.objective, device=run.device, lr=settings.lr, weight_decay=settings.weight_decay,
        ema_decay=settings.ema_decay if styled else 0.0, max_grad_norm=settings.max_grad_norm,
        precision=settings.precision, speed=settings.speed,
    )  # fmt: skip
    begin = settings.start_iteration if styled else 0
    if state is not None:
        begin = restore(state, run.network, phase.objective, step)
    done, told, clock, saved = begin, begin, time.perf_counter(), time.monotonic()
    try:
        for iteration in range(begin, phase.iterations):
            lr = settings.lr * SCHEDULES[settings.schedule](iteration, phase.iterations)
            with unbroken():  # the resumed run begins after this iteration: what is told of it is told now or never
                losses = step(*batch(iteration), lr)
                done = iteration + 1
                if done % settings.log_every == 0 or done == phase.iterations:
                    values = averaged(losses)  # waits for the device, so that the clock is right
                    rate = (done - told) / (time.perf_counter() - clock)
                    told, clock = done, time.perf_counter()
                    _tell(run, phase, done, values, {"lr": lr, "per_second": rate}, log)
                if settings.preview_every and done % settings.preview_every == 0:
                    run.preview(f"{phase.name}-{done:07d}")
            if done % settings.save_every == 0 or time.monotonic() - saved > SECONDS:
                _save(run, phase, step, done)
                saved = time.monotonic()
    except KeyboardInterrupt:
        with unbroken():
            _save(run, phase, step, done)
        raise
    _save(run, phase, step, phase.iterations)
    step.use_average()
    step.run.release()  # the next phase needs the memory


def _tell(run: Run, phase: Phase, done: int, losses: dict[str, float], pace: Mapping[str, float], log: Log | None) -> None:
    if log is not None:
        log.write(phase.name, done, {**losses, **pace})
    run.progress(Progress(phase.name, done, phase.iterations, losses, pace["per_second"]))
    if not math.isfinite(losses["loss"]):
        raise FloatingPointError(f"the loss is {losses['loss']} at iteration {done}; try a lower --lr")


def _save(run: Run, phase: Phase, step: Step, iteration: int) -> None:
    content = checkpoint(phase.name, iteration, run.network, phase.objective, step)
    # in every process, as all have the same weights: none waits for one that stopped
    check_finite(content, f"iteration {iteration} of {phase.name}")
    if run.first:
        write(content, run.checkpoint)
