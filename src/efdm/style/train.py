"""Training of style-transfer networks: data held on the device, one step after another, records, previews, resuming."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from efdm.data import Crops, ImageSet, draw_crops, take_crops
from efdm.environment import environment
from efdm.models import StyleNetwork, build
from efdm.models.weights import load_encoder, load_network, load_normalised_encoder, save_network
from efdm.nn.losses import random_directions
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.style.objective import DIRECTIONS, PaperObjective, ReconstructionObjective, SmallObjective
from efdm.style.records import Log, preview, write_json
from efdm.style.step import PRECISIONS, SPEEDS, Step, averaged, processes

BLOCK = 64  # iterations whose random draws are made at once
SLICED_CHANNELS = (256, 512)  # of the taps that have random directions


@dataclass(frozen=True)
class Settings:
    """Everything that decides how a run goes; written beside its results."""

    content: str
    style: str
    encoder: str = "vgg16"
    method: str = "efdm"
    iterations: int = 160_000  # paper
    batch: int = 8  # authors' code
    size: int = 256  # authors' code
    short_side: int = 288  # pictures are brought to this size before random crops
    lr: float = 1e-4  # authors' code
    schedule: str = "paper"
    weight_decay: float = 0.0
    average: float = 0.0  # moving average of the weights
    longest: float = 0.0  # gradient; 0 is any
    style_weight: float = 10.0  # authors' code, for the normalised VGG-19
    sliced_weight: float = 0.0
    identity_weight: float = 0.0
    reconstruct: int = 0  # iterations of reconstruction first (small)
    seed: int = 0
    precision: str = "bf16"
    speed: str = "graph"
    device: str = "cuda"
    vgg: str = ""  # file of the encoder or teacher; otherwise it is looked up
    start: str = ""  # a network to begin with
    begun: int = 0  # iterations that it has behind it: the schedule, the draws and the log go on from there


def public(settings: Settings) -> dict[str, Any]:
    """The settings as they go into a file that may be passed on: files by name, not by where they were."""
    files = {name: Path(getattr(settings, name)).name for name in ("content", "style", "vgg", "start")}
    return {**dataclasses.asdict(settings), **files}


# what differs from the defaults above
RECIPES: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "vgg16": {"style_weight": 4.0},  # chosen by looking: at 10 the paint covers the content
    "vgg19": {},
    "small": {
        "lr": 6e-4, "schedule": "cosine", "weight_decay": 1e-4, "average": 0.999, "longest": 50.0,
        "style_weight": 50.0, "sliced_weight": 12.0, "identity_weight": 30.0, "reconstruct": 2500, "iterations": 28_000,
    },
})  # fmt: skip
SCHEDULES: Mapping[str, Callable[[int, int], float]] = MappingProxyType({
    "paper": lambda i, total: 1 / (1 + 5e-5 * i),  # authors' code
    "cosine": lambda i, total: min(1.0, (i + 1) / 500) * (0.5 + 0.5 * math.cos(math.pi * i / total)),
    "constant": lambda i, total: 1.0,
})  # fmt: skip


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
        identities=1 if settings.identity_weight and rank == world - 1 else 0, processes=world,
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


@contextmanager
def unbroken() -> Iterator[None]:
    """Ctrl-C waits until the end of this: half an update could not be saved."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals arrive elsewhere
        return
    asked: list[Any] = []
    usual = signal.signal(signal.SIGINT, lambda *told: asked.append(told))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual or signal.default_int_handler)
    if asked and callable(usual):
        usual(*asked[0])


def train(
    settings: Settings,
    run: Path,
    *,
    resume: bool = False,
    log_every: int = 50,
    save_every: int = 5000,
    preview_every: int = 2000,
    progress: Callable[[Progress], None] = lambda _: None,
    reading: Callable[[int, int], None] | None = None,
) -> StyleNetwork:
    """Train a network and leave it, with the records of the run, in the folder ``run``.

    A run that was interrupted (by Ctrl-C or worse) goes on from its last checkpoint with ``resume=True``, with the
    settings it began with, and its losses are those it would have had without the interruption.
    """
    check_choice("method", settings.method, tuple(MATCHERS))
    check_choice("schedule", settings.schedule, tuple(SCHEDULES))
    check_choice("precision", settings.precision, tuple(PRECISIONS))
    check_choice("speed", settings.speed, SPEEDS)
    if settings.size > settings.short_side:
        wrong = f"crops of {settings.size} pixels do not fit pictures of {settings.short_side}"
        raise ValueError(f"{wrong}; lower --size or raise --short-side")
    if run.is_file():
        raise ValueError(f"{run} is a file; choose a folder for the run")
    saved = run / "checkpoint.pt"
    first = processes()[0] == 0
    if resume and not saved.exists():
        raise ValueError(f"{run} has no checkpoint to resume from; leave --resume out to begin a run")
    if not resume and saved.exists():
        raise ValueError(f"{run} has a run already; resume it, or choose another folder")
    device = torch.device(settings.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    contents = ImageSet.load(settings.content, short_side=settings.short_side, progress=reading)
    styles = ImageSet.load(settings.style, short_side=settings.short_side, progress=reading)
    # a checkpoint holds everything: the file that a run started with may be gone
    network = make_network(dataclasses.replace(settings, start="") if resume else settings).to(device)
    batches = Batches(contents, styles, settings, device)
    parts = phases(network, settings, device)
    state = torch.load(saved, map_location=device, weights_only=True) if resume else None
    run.mkdir(parents=True, exist_ok=True)
    if first and state is None:
        write_json(run / "settings.json", dataclasses.asdict(settings))
        skipped = [f"{name}: {why}" for images in (contents, styles) for name, why in images.skipped]
        counts = {"contents": len(contents), "styles": len(styles), "skipped": skipped}
        write_json(run / "environment.json", {**environment(device), **counts})
    log = Log(run, keep=(state["phase"], state["iteration"]) if state else None) if first else None

    for stream, phase in enumerate(parts):
        step = Step(
            phase.objective, device=device, lr=settings.lr, weight_decay=settings.weight_decay,
            average=settings.average if phase.name == "style" else 0.0, longest=settings.longest,
            precision=settings.precision, speed=settings.speed,
        )  # fmt: skip
        begin = settings.begun if phase.name == "style" else 0
        if state is not None:
            if phase.name != state["phase"]:
                continue  # finished before
            begin = state["iteration"]
            network.load_state_dict(state["network"])
            _restore_heads(phase.objective, state["heads"])
            step.restore(state["step"])
            state = None

        def save(iteration: int, phase: Phase = phase, step: Step = step) -> None:
            if not first:
                return
            content = {
                "phase": phase.name, "iteration": iteration, "network": network.state_dict(),
                "heads": _heads(phase.objective), "step": step.state(),
            }  # fmt: skip
            torch.save(content, saved.with_suffix(".new"))
            os.replace(saved.with_suffix(".new"), saved)

        done, told, clock = begin, begin, time.perf_counter()
        try:
            for iteration in range(begin, phase.iterations):
                lr = settings.lr * SCHEDULES[settings.schedule](iteration, phase.iterations)
                with unbroken():
                    losses = step(*batches(iteration, stream), lr)
                    done = iteration + 1
                if done % log_every == 0 or done == phase.iterations:
                    values = averaged(losses)
                    rate = (done - told) / (time.perf_counter() - clock)
                    told, clock = done, time.perf_counter()
                    if log is not None:
                        log.write(phase.name, done, {**values, "lr": lr, "per_second": rate})
                    progress(Progress(phase.name, done, phase.iterations, values, rate))
                    if not math.isfinite(values["loss"]):
                        raise FloatingPointError(f"the loss is {values['loss']} at iteration {done}; try a lower --lr")
                if first and preview_every and done % preview_every == 0:
                    preview(network, contents, styles, run / "previews" / f"{phase.name}-{done:07d}.jpg", device)
                if done % save_every == 0:
                    save(done)
        except KeyboardInterrupt:
            save(done)
            raise
        save(phase.iterations)
        step.use_average()
    if first:
        save_network(network, run / "network.safetensors", public(settings))
        if preview_every:
            preview(network, contents, styles, run / "previews" / "final.jpg", device)
        (run / "done").touch()
    if log is not None:
        log.close()
    return network


def _heads(objective: nn.Module) -> dict[str, Tensor]:
    return objective.heads.state_dict() if hasattr(objective, "heads") else {}  # type: ignore[union-attr, operator, return-value]


def _restore_heads(objective: nn.Module, state: Mapping[str, Tensor]) -> None:
    if hasattr(objective, "heads"):
        objective.heads.load_state_dict(state)  # type: ignore[union-attr, operator]
