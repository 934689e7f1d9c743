"""One training of a classifier as a piece of work with a pause after every step: set-up, steps, evaluations, files."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.data.samplers import Batches, domain_batches, uniform_batches
from efdm.dg.checkpoint import MODEL, load_classifier, save_classifier
from efdm.dg.evaluate import Counts, evaluate
from efdm.dg.settings import SCHEDULES, Settings, check_same_run, identity, public, read_settings
from efdm.dg.step import Step
from efdm.environment import environment
from efdm.models.backbones import build_backbone
from efdm.training.checkpoint import SECONDS, check_finite, write
from efdm.training.files import Record, read_lines, rounded, write_json, write_lines
from efdm.training.folder import lock_folder
from efdm.training.interrupt import unbroken
from efdm.training.lanes import Work
from efdm.training.log import Log
from efdm.training.settings import FILE

BLOCK = 1024  # iterations whose indices are brought to the device at once
RECORDS, CHECKPOINT, DONE = "records.jsonl", "checkpoint.pt", "done"


class Progress(NamedTuple):
    """What is told after a while of training."""

    run: str
    settings: Settings
    iteration: int
    iterations: int
    losses: dict[str, float]
    per_second: float


@dataclass(frozen=True)
class Trained:
    """A run that came to its end: the model in eval mode, and a record of each evaluation, the last one at the end."""

    settings: Settings
    model: nn.Module
    records: list[Record]
    classes: list[str]


Tell = Callable[[Progress], None]


def training(settings: Settings, data: DomainSet, folder: Path | None, *, lanes: int, progress: Tell) -> Work[Trained]:
    """A run from its beginning, or from the checkpoint in its folder, to its end. The data is on its device."""
    if folder is not None and (folder / DONE).exists():
        return _finished(settings, folder)
    with nullcontext() if folder is None else lock_folder(folder):
        run = _Run(settings, data, folder, lanes, progress)
        try:
            yield from run.steps()
        except (KeyboardInterrupt, GeneratorExit):
            # exploded: nothing worth saving, and the run will say so itself when it goes on
            with suppress(FloatingPointError), unbroken():
                run.save()
            raise
        finally:
            run.close()
    return Trained(run.settings, run.model.eval(), run.records, data.classes)


def _finished(settings: Settings, folder: Path) -> Trained:
    check_same_run(settings, folder)
    found = load_classifier(folder / MODEL, settings.device)
    return Trained(settings, found.model, _records(folder), found.classes)


def sampler(settings: Settings, data: DomainSet, start: int = 0) -> Batches:
    """The batches of a run from an iteration on."""
    pools = {domain: data.select(domain, "train") for domain in settings.train_domains}
    where: dict[str, Any] = {"seed": settings.seed, "epochs": "endless", "start": start}
    if settings.batches == "domains":
        many: Any = settings.domains_per_batch
        return domain_batches(pools, settings.batch, domains=many, **where)
    return uniform_batches(torch.cat(list(pools.values())), settings.batch, **where)


class _Clock:
    """Seconds of training: stopped in evaluations and while files are written, and right when the device has finished its
    work. Of several lanes each clock runs on while others set up, record or evaluate: they take turns in one thread."""

    def __init__(self, before: float = 0.0) -> None:
        self.before, self.since = before, math.nan  # nan while it is stopped

    def start(self) -> None:
        self.since = time.perf_counter()

    def stop(self) -> None:
        self.before, self.since = self.seconds(), math.nan

    def seconds(self) -> float:
        return self.before + (0.0 if math.isnan(self.since) else time.perf_counter() - self.since)


class _Run:
    """A run that is under way: ``done`` iterations are behind it."""

    def __init__(self, settings: Settings, data: DomainSet, folder: Path | None, lanes: int, progress: Tell) -> None:
        state = None
        if folder is not None and (folder / CHECKPOINT).exists():
            check_same_run(settings, folder)
            settings = dataclasses.replace(settings, weights_sha256=read_settings(folder).weights_sha256)
            state = torch.load(folder / CHECKPOINT, map_location=settings.device, weights_only=True)
            _check_same_pictures(state, data, folder)
        self.settings, self.data, self.folder, self.lanes, self.progress = settings, data, folder, lanes, progress
        self.name, self.environment = identity(settings), environment(settings.device)
        self.official_test = [domain for domain in data.official_test if domain in settings.test_domains]
        kinds = [*([] if state is None else state.get("devices", [])), torch.device(settings.device).type]
        self.devices = list(dict.fromkeys(kinds))
        torch.manual_seed(settings.seed)  # initial weights
        # a checkpoint holds everything: the file that a run began with may be gone
        weights = settings.weights if state is None else "random"
        self.model = build_backbone(settings.backbone, len(data.classes), weights=weights)
        self.step = Step(self.model, data, settings)
        self.done, self.loss, self.clock = 0, torch.tensor(math.nan), _Clock()
        if state is not None:
            self.step.restore(state)
            self.done, self.loss, self.clock = state["iteration"], torch.tensor(state["loss"]), _Clock(state["seconds"])
        self.ready = False  # until then there is nothing to save
        self.saved = time.monotonic()  # there was nothing to save before
        self.records: list[Record] = []
        self.log = None if folder is None else self._open(folder)

    def _open(self, folder: Path) -> Log:
        """The files of a run: new, or as they were at its checkpoint."""
        if self.done:
            self.records = [r for r in _records(folder) if r["step"] <= self.done]
        else:
            write_json(folder / FILE, dataclasses.asdict(self.settings))
            write_json(folder / "environment.json", self.environment)
        write_lines(folder / RECORDS, self.records)
        return Log(folder, keep=("train", self.done) if self.done else None)

    def steps(self) -> Work[None]:
        settings, total = self.settings, self.settings.iterations
        batches = self._batches()
        self.ready = True
        told = (self.done, self.clock.seconds())
        self.clock.start()
        while True:
            if self._evaluation_is_due():
                self.clock.stop()  # the device has finished: the loss was read
                self._note((yield from self._evaluation()))
                self.clock.start()
            if self.done == total:
                break
            lr = settings.lr * SCHEDULES[settings.schedule](self.done, total)
            indices = next(batches)
            with unbroken():  # a step and its line in the log: a checkpoint between them would lose the line
                self.loss = self.step(self.done, indices, lr)
                self.done += 1
                tells = self._every(settings.log_every) or self.done == total
                late = time.monotonic() - self.saved > SECONDS
                saves = (self._every(settings.save_every) or late) and self.done < total
                if tells or saves or self._evaluation_is_due():
                    loss = self._checked_loss()  # waits for the device, so that the clock is right
                if tells:
                    now = self.clock.seconds()
                    self._tell(loss, lr, (self.done - told[0]) / (now - told[1]))
                    told = (self.done, now)
            if saves:
                self.clock.stop()
                self.save()
                self.clock.start()
            yield
        self._leave()

    def _batches(self) -> Iterator[Tensor]:
        """Indices on the device, from the next iteration on. Makes the step ready, which is no time of training."""
        left = self.settings.iterations - self.done
        chosen = iter(sampler(self.settings, self.data, start=self.done))
        blocks = (torch.stack(list(islice(chosen, min(BLOCK, left - at)))) for at in range(0, left, BLOCK))
        moved = (block.to(self.settings.device) for block in blocks)
        first = next(moved, None)
        if first is None:
            return iter(())
        self.step.prepare(first[0])
        return (batch for block in _chained(first, moved) for batch in block.unbind(0))

    def _every(self, iterations: int) -> bool:
        return iterations > 0 and self.done % iterations == 0

    def _evaluation_is_due(self) -> bool:
        wanted = self.done == self.settings.iterations or (self.done > 0 and self._every(self.settings.evaluate_every))
        return wanted and (not self.records or self.records[-1]["step"] < self.done)

    def _evaluation(self) -> Work[dict[str, Counts]]:
        wanted = {"val": self.data.domain_names, "test": self.settings.test_domains}
        return evaluate(self.model, self.data, wanted, self.settings.size, precision=self.settings.precision)

    def _note(self, counts: dict[str, Counts]) -> None:
        seconds = self.clock.seconds()
        record = {
            "run": self.name, "settings": public(self.settings), "seed": self.settings.seed, "step": self.done,
            "last": self.done == self.settings.iterations, "loss": rounded(float(self.loss)), "seconds": rounded(seconds),
            "per_second": rounded(self.done / seconds), "lanes": self.lanes, "device": " and ".join(self.devices), **counts,
            **({"official_test": self.official_test} if self.official_test else {}), "environment": self.environment,
        }  # fmt: skip
        self.records.append(json.loads(json.dumps(record)))  # as it will be read: lists for tuples
        if self.folder is not None:
            with (self.folder / RECORDS).open("a") as file:
                file.write(json.dumps(record) + "\n")

    def _checked_loss(self) -> float:
        loss = float(self.loss)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at {self._place()}; try a lower learning rate")
        return loss

    def _place(self) -> str:
        seen = ", ".join(self.settings.train_domains)
        return f"iteration {self.done} of {self.settings.method} (on {seen}, seed {self.settings.seed}, run {self.name})"

    def _tell(self, loss: float, lr: float, per_second: float) -> None:
        if self.log is not None:
            self.log.write("train", self.done, {"loss": loss, "lr": lr, "per_second": per_second})
        told = {"loss": loss}
        self.progress(Progress(self.name, self.settings, self.done, self.settings.iterations, told, per_second))

    def save(self) -> None:
        self.saved = time.monotonic()
        if self.folder is None or not self.ready:
            return
        state = self.step.state()
        check_finite(state, self._place())
        told = {"iteration": self.done, "loss": float(self.loss), "seconds": self.clock.seconds(), "devices": self.devices}
        write({**told, "pictures": _counted(self.data), **state}, self.folder / CHECKPOINT)

    def _leave(self) -> None:
        """What stays of a run that came to its end. Nothing can go on from it: its learning rate is at its end, too."""
        if self.folder is None:
            return
        stored_size = self.data.images.shape[-1]
        save_classifier(
            self.model, self.folder / MODEL, classes=self.data.classes, settings=self.settings, stored_size=stored_size
        )
        (self.folder / DONE).touch()
        (self.folder / CHECKPOINT).unlink(missing_ok=True)

    def close(self) -> None:
        self.step.release()
        if self.log is not None:
            self.log.close()


def _chained(first: Tensor, others: Iterator[Tensor]) -> Generator[Tensor, None, None]:
    yield first
    yield from others


def _counted(data: DomainSet) -> dict[str, dict[str, dict[str, int]]]:
    return {"class": data.counts("class"), "split": data.counts("split")}


def _check_same_pictures(state: dict[str, Any], data: DomainSet, folder: Path) -> None:
    """Raise where a run would go on with other batches than those it would have had."""
    if state.get("pictures", _counted(data)) != _counted(data):
        raise ValueError(f"these are not the pictures that the run in {folder} began with; give those, or begin another run")


def _records(folder: Path) -> list[Record]:
    return read_lines(folder / RECORDS) if (folder / RECORDS).exists() else []
