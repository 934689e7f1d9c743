"""Settings that the tasks share, and the identity of a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from efdm.errors import SettingError
from efdm.models.backbones import NAMED_WEIGHTS, weights_checksum
from efdm.nn import LAYERS
from efdm.recognition.methods import Method, options_of
from efdm.training.capture import Speed
from efdm.training.device import Precision
from efdm.training.settings import Count, Names, Natural, Options, Share, Text, TrainSettings, public, validated


@validated
class RecognitionSettings(TrainSettings):
    """Settings of a network that is trained on some domains and tested on others. A task adds its own."""

    data: str = Field(kw_only=False)  # a name for the records
    train_domains: Names = Field(kw_only=False, min_length=1)
    test_domains: Names = Field(kw_only=False)
    method: str = "erm"
    options: Options = Field(default_factory=dict, kw_only=True)  # of the method
    backbone: str = "resnet18"
    weights: Text = "random"  # or "timm", or a file
    weights_sha256: str = ""  # first digits of the checksum of that file; see `resolved`
    stages: Names = ("stage1", "stage2", "stage3")  # paper, ResNet-18
    batches: str = "uniform"
    domains_per_batch: Count | Literal["all"] = 2  # for batches="domains"; paper: two
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: Share = 0.9  # paper; for SGD
    batchnorm: Literal["train", "frozen"] = "train"  # "frozen" keeps the running statistics of the initial weights
    size: Any = 224  # a side, or height and width
    precision: Precision = "bf16"
    speed: Speed = "graph"
    device: Text = "cuda"
    evaluate_every: Natural = 0  # iterations; 0: only at the end

    files: ClassVar[tuple[str, ...]] = ("weights",)
    methods: ClassVar[Mapping[str, Method]] = {}

    def fixed(self) -> dict[str, Any]:
        """Return the settings that must stay the same when the run is resumed, with every option of the method."""
        defaults = self.methods[self.method].options if self.method in self.methods else {}
        return {**super().fixed(), "options": {**defaults, **self.options}}

    def check(self) -> None:
        """Raise for an unknown method or option, an option of the wrong type or value, or contradictory settings."""
        options, method = all_options(self), self.methods[self.method]
        for name, default in method.options.items():
            if options[name] is None and name == "alpha" and self.method in LAYERS:
                continue  # None: distributions are exchanged instead of mixed
            if type(options[name]) not in ((int, float) if isinstance(default, float) else (type(default),)):
                kind = type(default).__name__
                message = f"option {name} of {self.method} must be of type {kind}, got {options[name]!r}"
                raise SettingError(message, "options")
        try:  # layers, batch changes and penalties check their arguments
            method.make(len(self.stages), None, **options)
        except ValueError as error:
            raise SettingError(str(error), "options") from None

    def check_batches(self, available: int | None, noun: str = "training domains") -> None:
        """Raise SettingError if the batches do not contain the number of samples or domains that the method needs.

        ``available`` is the number of domains in the training data, or None before the data is known. ``noun`` names them in
        messages.
        """
        method = self.methods[self.method]
        least, most = method.domains
        if self.batch < method.min_batch:
            message = f"{method.name} mixes samples of a batch; batch must be at least {method.min_batch}, got {self.batch}"
            raise SettingError(message, "batch")
        simpler = method.name.partition("-")[0] if "-" in method.name else "erm"
        if available is not None and available < least:
            message = f"{method.name} needs at least {least} {noun}, got {available}; add one, or use {simpler!r}"
            raise SettingError(message, ("train_domains", "method"))
        if self.batches == "domains":
            domains = available if self.domains_per_batch == "all" else self.domains_per_batch
            if domains is None:
                return
            if available is not None and domains > available:
                message = f"domains_per_batch must be at most {available}, the number of {noun}, or 'all'; got {domains}"
                raise SettingError(message, "domains_per_batch")
            if self.batch % domains:
                message = f"batch must be a multiple of the {domains} domains in it, got {self.batch}"
                raise SettingError(message, ("batch", "domains_per_batch"))
            if least <= domains <= most:
                return
        elif most == math.inf:  # other samplers give batches of any number of domains
            return
        amount = f"{'' if least == most else 'at least '}{least} domains in equal parts"
        remedy = f"set batches='domains' and domains_per_batch={least}, or use {simpler!r}"
        message = f"{method.name} needs batches of {amount}; {remedy}"
        raise SettingError(message, ("batches", "domains_per_batch", "method"))


AnySettings = TypeVar("AnySettings", bound=RecognitionSettings)


def all_options(settings: RecognitionSettings) -> dict[str, Any]:
    """Return all options of the method. Raise for an unknown method or option."""
    return options_of(settings.method, settings.options, settings.methods)


def resolved(settings: AnySettings) -> AnySettings:
    """Return the settings with every option of the method and with the checksum of the weights file.

    A different file with the same name gives a different run. If the file no longer exists, the stored checksum is kept,
    because a started run does not need the file.
    """
    known = "" if settings.weights in NAMED_WEIGHTS else settings.weights_sha256
    checksum = weights_checksum(settings.weights) or known
    return dataclasses.replace(settings, options=all_options(settings), weights_sha256=checksum)  # type: ignore[type-var]


def identity(settings: RecognitionSettings) -> str:
    """Return twelve hex digits that identify a run, independent of its device, speed and logging.

    CPUs and GPUs draw different random numbers, so runs with one identity on both are two samples of one experiment.
    """
    values = {name: value for name, value in public(settings).items() if name not in settings.movable}
    values["options"] = all_options(settings)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def run_label(settings: RecognitionSettings) -> str:
    """Return a short unique description: ``efdmix, tested on sketch, seed 0 [3f2a91]``."""
    by_test = 0 < len(settings.test_domains) <= len(settings.train_domains)
    side = f"tested on {', '.join(settings.test_domains)}" if by_test else f"trained on {', '.join(settings.train_domains)}"
    return f"{settings.method}, {side}, seed {settings.seed} [{identity(settings)[:6]}]"
