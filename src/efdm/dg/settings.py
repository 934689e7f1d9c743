"""Everything that decides how a training of a classifier goes, and what makes it this run and no other."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from efdm.dg.augment import AUGMENTATIONS
from efdm.dg.kinds import check_fields, check_kind
from efdm.dg.methods import METHODS, options_of
from efdm.models.backbones import NAMED_WEIGHTS, weights_checksum
from efdm.ops.choices import check_choice
from efdm.training import PRECISIONS, SPEEDS
from efdm.training import settings as training

BATCHES = ("uniform", "domains")
# what each takes besides its rate and weight decay
OPTIMIZERS: Mapping[str, tuple[type[torch.optim.Optimizer], tuple[str, ...]]] = MappingProxyType({
    "sgd": (torch.optim.SGD, ("momentum",)),
    "adam": (torch.optim.Adam, ("capturable",)),
})  # fmt: skip
BATCHNORMS = ("train", "frozen")
FILES = ("weights",)  # settings that may be files
CHECKSUM = "weights_sha256"
MOVABLE = ("device", "speed", "log_every", "save_every")  # where a run goes on and what it tells; the rest is the run itself


@dataclass(frozen=True)
class Settings:
    """One training. The defaults are the paper's for PACS, leave one domain out (random shuffle), but for the network: a
    backbone and its ``weights`` are to be named."""

    data: str  # a name, for the record
    train_domains: tuple[str, ...]
    test_domains: tuple[str, ...]
    method: str = "erm"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method
    backbone: str = "resnet18"
    weights: str = "random"  # or "timm", or a file
    weights_sha256: str = ""  # of that file, its beginning: see `resolved`
    stages: tuple[str, ...] = ("stage1", "stage2", "stage3")  # paper, ResNet-18
    iterations: int = 5000  # paper: 50 epochs of about 100
    batch: int = 64  # paper
    batches: str = "uniform"
    domains_per_batch: int | str = 2  # for batches of "domains"; paper: twice 64. Or "all"
    optimizer: str = "sgd"
    lr: float = 1e-3  # paper
    momentum: float = 0.9  # paper; for SGD
    weight_decay: float = 5e-4  # paper
    schedule: str = "cosine"
    augmentation: str = "paper"
    size: int = 224
    batchnorm: str = "train"  # "frozen" keeps the means and variances of the weights it begins with
    seed: int = 0
    precision: str = "bf16"
    speed: str = "graph"
    device: str = "cuda"
    evaluate_every: int = 0  # iterations; 0 is at the end only
    save_every: int = 1000  # 0 is by the clock alone, see `efdm.training.checkpoint`; and whenever it is interrupted
    log_every: int = 50

    def __post_init__(self) -> None:
        for name, kind in {"weights": os.PathLike, "device": torch.device}.items():
            if isinstance(getattr(self, name), kind):
                object.__setattr__(self, name, str(getattr(self, name)))
        check_fields(Settings, vars(self))
        for name in ("train_domains", "test_domains", "stages"):  # JSON makes lists of tuples
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "options", dict(self.options))


# share of the learning rate at an iteration, of so many
SCHEDULES: Mapping[str, Callable[[int, int], float]] = MappingProxyType({
    "cosine": lambda i, total: 0.5 + 0.5 * math.cos(math.pi * i / total),
    "constant": lambda i, total: 1.0,
    # the authors' runs with domain labels: a cosine over 150 epochs, of which about 79 steps were ever taken, since the
    # sampler's epochs varied in length and the schedule waited for one length. They are spread evenly here.
    "authors": lambda i, total: 0.5 + 0.5 * math.cos(math.pi * (79 * i // total) / 150),
})  # fmt: skip


def check(settings: Settings) -> None:
    """Raise for what can be seen to be wrong before a picture is looked at."""
    options = options_of(settings.method, settings.options)
    for name, default in METHODS[settings.method].options.items():
        check_kind(name, options[name], type(default), default)
    METHODS[settings.method].make(len(settings.stages), None, **options)  # its parts check what they are given
    for name, allowed in {
        "batches": BATCHES, "optimizer": OPTIMIZERS, "schedule": SCHEDULES, "augmentation": AUGMENTATIONS,
        "batchnorm": BATCHNORMS, "precision": PRECISIONS, "speed": SPEEDS,
    }.items():  # fmt: skip
        check_choice(name, getattr(settings, name), tuple(allowed))
    if not settings.train_domains:
        raise ValueError("train_domains is empty; name at least one domain to learn from")
    if both := set(settings.train_domains) & set(settings.test_domains):
        raise ValueError(f"{', '.join(sorted(both))} would be learnt from and tested; a test domain must be a new one")
    for name, least in {
        "iterations": 1,
        "batch": 1,
        "size": 1,
        "log_every": 1,
        "evaluate_every": 0,
        "save_every": 0,
    }.items():
        if getattr(settings, name) < least:
            raise ValueError(f"{name} is {getattr(settings, name)}; give at least {least}")
    for name, below in {"lr": math.inf, "momentum": 1, "weight_decay": math.inf}.items():
        if not 0 <= getattr(settings, name) < below:  # nan is not, either
            most = f" and below {below}" if math.isfinite(below) else ", and a finite one"
            raise ValueError(f"{name} is {getattr(settings, name)}; give a number of at least 0{most}")
    _check_it_can_mix(settings)
    _check_domains(settings)


def _check_it_can_mix(settings: Settings) -> None:
    """Raise where a method would find nobody to mix with: it would be erm under another name."""
    method = METHODS[settings.method]
    if settings.batch < method.min_batch:
        raise ValueError(
            f"{method.name} needs other pictures in the batch, and a batch of {settings.batch} has none; give a batch of at "
            f"least {method.min_batch}, or choose erm"
        )
    if len(settings.train_domains) < method.domains[0]:
        others = f"{method.name.partition('-')[0]}, which needs no second domain"
        raise ValueError(
            f"{method.name} mixes pictures of different domains and {settings.train_domains[0]} is the only one to learn "
            f"from; give two domains or more, or choose {others}"
        )


def _check_domains(settings: Settings) -> None:
    """Raise where a batch cannot be of so many domains in equal parts, or where a method pairs others than it says."""
    many: Any = settings.domains_per_batch
    there, method = len(settings.train_domains), METHODS[settings.method]
    least, most = method.domains
    if settings.batches == "domains":
        if many != "all" and not isinstance(many, int):
            raise ValueError(f"domains_per_batch={many!r}; give a number, or 'all'")
        parts = there if many == "all" else many
        if not 1 <= parts <= there:
            raise ValueError(f"domains_per_batch is {many} and there are {there} training domains; give fewer, or 'all'")
        if settings.batch % parts:
            raise ValueError(f"a batch of {settings.batch} has no {parts} equal parts; make it a multiple of {parts}")
        fits, are = least <= parts <= most, f"of {parts}"
    else:
        fits, are = most == math.inf, "mixed at random"
    if not fits:
        needs = "" if least == most else "at least "
        raise ValueError(
            f"{method.name} needs batches of {needs}{least} domains in equal parts, and these are {are}; give "
            f"batches='domains' and domains_per_batch={least}, or choose {method.name.partition('-')[0]}, which takes any"
        )


def resolved(settings: Settings) -> Settings:
    """The same, said in full: with all options of its method, and the checksum of its weights file. Another file of the same
    name is another training.

    Of a file that is gone, what the settings say of it is kept: a run that was begun does not need the file.
    """
    known = "" if settings.weights in NAMED_WEIGHTS else settings.weights_sha256
    options = options_of(settings.method, settings.options)
    return replace(settings, options=options, weights_sha256=weights_checksum(settings.weights) or known)


def identity(settings: Settings) -> str:
    """Twelve letters that two trainings share when they are the same: not where they run, nor what they tell of it.

    Of settings that are `resolved`. CPUs and GPUs draw other numbers, so that one identity on both is one experiment, done
    twice; records tell the device.
    """
    told = {name: value for name, value in public(settings).items() if name not in MOVABLE}
    told["options"] = options_of(settings.method, settings.options)  # also of settings that are not resolved
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def run_label(settings: Settings) -> str:
    """Return a short description of a run: its method, the test or training domains (whichever are fewer), its seed."""
    tested = 0 < len(settings.test_domains) <= len(settings.train_domains)
    side = f"tested on {', '.join(settings.test_domains)}" if tested else f"trained on {', '.join(settings.train_domains)}"
    return f"{settings.method}, {side}, seed {settings.seed}"


def read_settings(run: Path) -> Settings:
    return training.read_settings(Settings, run)


def check_same_run(settings: Settings, run: Path) -> None:
    """Raise where ``settings`` are not those that the run began with. A file of weights that is gone is not asked for."""
    unknown = () if settings.weights_sha256 or settings.weights in NAMED_WEIGHTS else (CHECKSUM,)
    before = read_settings(run)
    if settings.method == before.method:  # a default that was written down changes nothing
        settings, before = (replace(s, options=options_of(s.method, s.options)) for s in (settings, before))
    training.check_same_run(settings, run, movable=(*MOVABLE, *FILES, *unknown), before=before)


def public(settings: Settings) -> dict[str, Any]:
    """The settings as they go into a record that may be passed on."""
    return training.public(settings, files=FILES)
