"""A small set of domains, and constructed records in place of training, for tests of the lab."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from efdm.data.domains import DomainSet, labelled
from efdm.data.layouts import Item
from efdm.dg.settings import Settings
from efdm.lab import Recipe, Study, expand
from efdm.lab.records import by_run
from efdm.recognition.settings import identity
from efdm.training.settings import public

DOMAINS = ("art", "cartoon", "photo", "sketch")
PICTURES = {"art": 20, "cartoon": 30, "photo": 10, "sketch": 40}  # unequal: pooled differs from the mean of domains


def small_set(domains: tuple[str, ...] = DOMAINS, classes: int = 2) -> DomainSet:
    """Return noise with a colour per class; every fifth picture is in "val"."""
    items = [
        Item(
            f"{domain}/{i % classes}/{i:03d}.png", domain, f"{i % classes}", frozenset({"test", "train" if i % 5 else "val"})
        )
        for domain in domains
        for i in range(PICTURES.get(domain, 20))
    ]
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 128, (len(items), 3, 32, 32), dtype=torch.uint8, generator=generator)
    images[:, 0] += torch.tensor([int(item.label) * 100 for item in items])[:, None, None].to(torch.uint8)
    return labelled(images, items, [str(label) for label in range(classes)], domains)


def record(settings: Settings, step: int, val: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": identity(settings), "settings": public(settings), "seed": settings.seed, "step": step,
        "last": step == settings.iterations, "loss": 0.5, "seconds": 1.0, "per_second": 100.0, "val": val, "test": test,
    }  # fmt: skip


Accuracy = Callable[[Settings, int, str, str], float]  # settings, step, split, domain -> percent


def records_of(settings: Settings, accuracy: Accuracy) -> list[dict[str, Any]]:
    """Return the records of a run with the given accuracies, of 1000 pictures in "val" and 5000 in "test"."""

    def counted(step: int, split: str, domains: tuple[str, ...], pictures: int) -> dict[str, list[int]]:
        return {d: [round(accuracy(settings, step, split, d) / 100 * pictures), pictures] for d in domains}

    every = settings.evaluate_every or settings.iterations
    steps = sorted({*range(every, settings.iterations, every), settings.iterations})
    both = (*settings.train_domains, *settings.test_domains)
    return [
        record(settings, s, counted(s, "val", both, 1000), counted(s, "test", settings.test_domains, 5000)) for s in steps
    ]


def studied(recipe: Recipe, accuracy: Accuracy) -> Study:
    """A recipe with all its runs finished, without a folder."""
    jobs = expand(recipe, DOMAINS)
    records = [r for _, settings in jobs for r in records_of(settings, accuracy)]
    return Study(recipe, list(DOMAINS), [planned for planned, _ in jobs], by_run(records))


SHORT = {"iterations": 30, "evaluate_every": 10, "backbone": "tiny", "device": "cpu", "precision": "fp32", "speed": "plain"}


def small(**changes: Any) -> Recipe:
    fields = {"protocol": "leave-one-out", "data": "noise", "methods": ["erm", "efdmix"], "settings": SHORT}
    return Recipe(**{**fields, "seeds": (0, 1, 2), "name": "small", **changes})


def steady(settings: Settings, step: int, split: str, domain: str) -> float:
    """A base for each domain, plus a gain per seed and one for EFDMix."""
    base = {"art": 60, "cartoon": 70, "photo": 90, "sketch": 50}[domain]
    return base + settings.seed * (1 if domain == "art" else 2) + (3 if settings.method == "efdmix" else 0)


def without(study: Study, *missing: int) -> Study:
    gone = {study.plan[i].run for i in missing}
    return replace(study, runs={run: records for run, records in study.runs.items() if run not in gone})


class Trainer:
    """Replaces `train_runs`: records the runs, and raises KeyboardInterrupt when none are ``left``."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.sets: list[DomainSet] = []
        self.left = 10**9

    def __call__(self, _task: Any, settings: list[Settings], data: DomainSet, *_: Any, finished: Any, **__: Any) -> None:
        for each in settings:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            self.trained.append(identity(each))
            self.sets.append(data)
            finished(SimpleNamespace(records=records_of(each, lambda *_: 50.0)))


def small_reid(**changes: Any) -> Recipe:
    fields = {
        "task": "reid", "protocol": "cross-dataset", "data": "a, b", "methods": ["erm", "efdmix"], "seeds": (0, 1, 2),
        "settings": {"iterations": 10, "device": "cpu"}, "orders": (("erm", "efdmix"),), "std": "error",
        "columns": {"a": {"protocols": {"a": "person-camera"}}},
    }  # fmt: skip
    return Recipe(**{**fields, "name": "small", **changes})


def reid_study() -> Study:
    """Return a finished study: mAP 30 on b and 5 on a, ranks 10 apart, a spread of seeds; EFDMix has 2 more, or 1 less."""
    recipe = small_reid()
    jobs = expand(recipe, ["a", "b"])
    records = []
    for planned, settings in jobs:
        (name,) = planned.cell.test
        base = {"a": 5.0, "b": 30.0}[name] + settings.seed - 1
        base += {"a": -1, "b": 2}[name] + 0.01 * settings.seed - 0.01 if settings.method == "efdmix" else 0
        values = {entry: (base + 10 * i) / 100 for i, entry in enumerate(("mAP", "rank1", "rank5", "rank10"))}
        records.append(record(settings, settings.iterations, {}, {name: values}))
    return Study(recipe, ["a", "b"], [planned for planned, _ in jobs], by_run(records))
