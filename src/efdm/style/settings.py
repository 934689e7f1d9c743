"""Everything that decides how a training goes, and what must stay the same when it is resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from efdm.models import NETWORKS
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.training import PRECISIONS, SPEEDS
from efdm.training import settings as training
from efdm.training.device import default_device, suited

IDENTITIES = 1  # samples of a batch that are styled by themselves (small)
FILES = ("content", "style", "vgg", "start")  # settings that are files
TOLD = ("log_every", "save_every", "preview_every")  # settings that change nothing but what is told of a run
MOVABLE = (*FILES, *TOLD, "device", "speed")  # where files are and where a run goes on; everything else is the run itself


@dataclass(frozen=True)
class Settings:
    """Everything that decides how a run goes; written beside its results. The defaults are the paper's:
    `Settings.for_encoder` begins with what suits a network."""

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
    ema_decay: float = 0.0  # moving average of the weights
    max_grad_norm: float = 0.0  # gradient; 0 is any
    style_weight: float = 10.0  # authors' code, for the normalised VGG-19
    sliced_weight: float = 0.0
    identity_weight: float = 0.0
    reconstruct: int = 0  # iterations of reconstruction first (small)
    seed: int = 0
    precision: str = ""  # what suits the device
    speed: str = ""  # what suits the device
    device: str = ""  # the GPU if there is one
    vgg: str = ""  # file of the encoder or teacher; otherwise it is looked up
    start: str = ""  # a network to begin with
    start_iteration: int = 0  # iterations that it has behind it: the schedule, the draws and the log go on from there
    log_every: int = 50  # iterations
    save_every: int = 5000
    preview_every: int = 2000  # 0 is never

    def __post_init__(self) -> None:
        """Settle what follows the machine: a run's settings say where and how it ran."""
        device = self.device or default_device()
        for name, value in {"device": device, **suited(device)}.items():
            object.__setattr__(self, name, getattr(self, name) or value)

    @classmethod
    def for_encoder(cls, encoder: str, *, content: str, style: str, **changes: Any) -> Settings:
        """The recipe of a network; ``changes`` go before it."""
        check_choice("encoder", encoder, tuple(NETWORKS))
        return cls(content=content, style=style, encoder=encoder, **{**NETWORKS[encoder].recipe, **changes})


SCHEDULES: Mapping[str, Callable[[int, int], float]] = MappingProxyType({
    "paper": lambda i, total: 1 / (1 + 5e-5 * i),  # authors' code
    "cosine": lambda i, total: min(1.0, (i + 1) / 500) * (0.5 + 0.5 * math.cos(math.pi * i / total)),
    "constant": lambda i, total: 1.0,
})  # fmt: skip


def check(settings: Settings) -> None:
    """Raise for what can be seen to be wrong before a picture is read."""
    if settings.encoder not in NETWORKS:
        raise ValueError(f"{settings.encoder!r} is not a network; choose one of {', '.join(NETWORKS)}")
    check_choice("method", settings.method, tuple(MATCHERS))
    check_choice("schedule", settings.schedule, tuple(SCHEDULES))
    check_choice("precision", settings.precision, tuple(PRECISIONS))
    check_choice("speed", settings.speed, SPEEDS)
    if settings.size > settings.short_side:
        wrong = f"crops of {settings.size} pixels do not fit pictures of {settings.short_side}"
        raise ValueError(f"{wrong}; lower --size or raise --short-side")
    if settings.encoder == "small" and settings.identity_weight and settings.batch <= IDENTITIES:
        wrong = f"in a batch of {settings.batch} every content is its own style and none is learnt"
        raise ValueError(f"{wrong}; raise --batch, or set --identity-weight to 0")


def read_settings(run: Path) -> Settings:
    """The settings that a run began with. What an older run does not tell has its default."""
    return training.read_settings(Settings, run)


def check_same_run(settings: Settings, run: Path) -> None:
    """Raise where ``settings`` are not those that the run began with."""
    training.check_same_run(settings, run, movable=MOVABLE)


def public(settings: Settings) -> dict[str, Any]:
    """The settings as they go into a file that may be passed on."""
    return training.public(settings, files=FILES)
