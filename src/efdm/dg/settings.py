"""Settings of a classifier's training run, and the identity of the run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from efdm.dg.augment import AUGMENTATIONS
from efdm.dg.methods import METHODS, options_of
from efdm.errors import SettingError
from efdm.models.backbones import NAMED_WEIGHTS, weights_checksum
from efdm.nn import LAYERS
from efdm.ops.choices import check_choice
from efdm.training import settings as training
from efdm.training.capture import Speed
from efdm.training.precision import Precision
from efdm.training.settings import Count, Names, Natural, NonNegative, Options, Share, Text, TrainSettings, public, validated

__all__ = ["Settings", "check", "identity", "public", "read_settings", "resolved", "run_label"]


@validated
class Settings(TrainSettings):
    """One run. The defaults are the paper's for PACS, leave one domain out (random shuffle), except for ``weights``."""

    data: str = Field(kw_only=False)  # a name for the records
    train_domains: Names = Field(kw_only=False, min_length=1)
    test_domains: Names = Field(kw_only=False)
    method: str = "erm"
    options: Options = Field(default_factory=dict, kw_only=True)  # of the method
    backbone: str = "resnet18"
    weights: Text = "random"  # or "timm", or a file
    weights_sha256: str = ""  # first digits of the checksum of that file; see `resolved`
    stages: Names = ("stage1", "stage2", "stage3")  # paper, ResNet-18
    iterations: Count = 5000  # paper: 50 epochs of about 100
    batches: Literal["uniform", "domains"] = "uniform"
    domains_per_batch: Count | Literal["all"] = 2  # for batches="domains"; paper: two domains of 64
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: Share = 0.9  # paper; for SGD
    weight_decay: NonNegative = 5e-4  # paper
    augmentation: str = "paper"
    size: Count = 224
    batchnorm: Literal["train", "frozen"] = "train"  # "frozen" keeps the running statistics of the initial weights
    precision: Precision = "bf16"
    speed: Speed = "graph"
    device: Text = "cuda"
    evaluate_every: Natural = 0  # iterations; 0: only at the end

    files: ClassVar[tuple[str, ...]] = ("weights",)

    def fixed(self) -> dict[str, Any]:
        """Return the settings that must stay the same when the run is resumed. The weights file may no longer exist."""
        defaults = METHODS[self.method].options if self.method in METHODS else {}
        values = {**super().fixed(), "options": {**defaults, **self.options}}
        if not self.weights_sha256 and self.weights not in NAMED_WEIGHTS:
            del values["weights_sha256"]
        return values


def check(settings: Settings) -> None:
    """Raise SettingError for contradictory settings and for an unknown method, option or augmentation."""
    options = options_of(settings.method, settings.options)
    method = METHODS[settings.method]
    for name, default in method.options.items():
        if options[name] is None and name == "alpha" and method.name in LAYERS:
            continue  # distributions are exchanged, not mixed
        if type(options[name]) not in ((int, float) if isinstance(default, float) else (type(default),)):
            message = f"option {name} of {method.name} must be of type {type(default).__name__}, got {options[name]!r}"
            raise SettingError(message, "options")
    method.make(len(settings.stages), None, **options)  # layers and batch changes check their arguments
    check_choice("augmentation", settings.augmentation, AUGMENTATIONS)
    if both := set(settings.train_domains) & set(settings.test_domains):
        message = f"{', '.join(sorted(both))} cannot be both a training and a test domain"
        raise SettingError(message, ("train_domains", "test_domains"))
    if settings.batch < method.min_batch:
        message = f"{method.name} mixes samples of a batch; batch must be at least {method.min_batch}, got {settings.batch}"
        raise SettingError(message, "batch")
    _check_domains(settings)


def _check_domains(settings: Settings) -> None:
    """Raise SettingError if the batches do not contain the number of domains that the method needs."""
    available, method = len(settings.train_domains), METHODS[settings.method]
    least, most = method.domains
    other = method.name.partition("-")[0] if "-" in method.name else "erm"
    if available < least:
        message = f"{method.name} needs at least {least} training domains, got {available}; add one, or use {other!r}"
        raise SettingError(message, ("train_domains", "method"))
    if settings.batches == "domains":
        parts = available if settings.domains_per_batch == "all" else settings.domains_per_batch
        if parts > available:
            message = f"domains_per_batch must be at most {available}, the number of training domains, or 'all'; got {parts}"
            raise SettingError(message, "domains_per_batch")
        if settings.batch % parts:
            message = f"batch must be a multiple of the {parts} domains in it, got {settings.batch}"
            raise SettingError(message, ("batch", "domains_per_batch"))
        fits = least <= parts <= most
    else:
        fits = most == math.inf
    if not fits:
        needed = f"{'' if least == most else 'at least '}{least} domains in equal parts"
        remedy = f"set batches='domains' and domains_per_batch={least}, or use {other!r}"
        message = f"{method.name} needs batches of {needed}; {remedy}"
        raise SettingError(message, ("batches", "domains_per_batch", "method"))


def resolved(settings: Settings) -> Settings:
    """Return the settings with every option of the method and with the checksum of the weights file.

    A different file with the same name gives a different run. If the file no longer exists, the stored checksum is kept,
    because a started run does not need the file.
    """
    known = "" if settings.weights in NAMED_WEIGHTS else settings.weights_sha256
    options = options_of(settings.method, settings.options)
    return dataclasses.replace(settings, options=options, weights_sha256=weights_checksum(settings.weights) or known)


def identity(settings: Settings) -> str:
    """Return twelve hex digits that identify a run, independent of its device, speed and logging.

    CPUs and GPUs draw different random numbers, so runs with one identity on both are two samples of one experiment.
    """
    values = {name: value for name, value in public(settings).items() if name not in settings.movable}
    values["options"] = options_of(settings.method, settings.options)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def run_label(settings: Settings) -> str:
    """Return a short unique description: ``efdmix, tested on sketch, seed 0 [3f2a91]``."""
    by_test = 0 < len(settings.test_domains) <= len(settings.train_domains)
    side = f"tested on {', '.join(settings.test_domains)}" if by_test else f"trained on {', '.join(settings.train_domains)}"
    return f"{settings.method}, {side}, seed {settings.seed} [{identity(settings)[:6]}]"


def read_settings(folder: Path) -> Settings:
    """Return the settings that the run in ``folder`` was started with."""
    return training.read_settings(Settings, folder)
