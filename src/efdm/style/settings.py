"""Settings of a style-transfer training run."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from efdm.errors import SettingError
from efdm.models import NETWORKS
from efdm.nn.losses import STYLE_LOSSES
from efdm.ops.choices import check_choice
from efdm.style.objective import IDENTITIES
from efdm.training.capture import Speed
from efdm.training.device import Precision, default_device, device_defaults
from efdm.training.schedules import Schedule
from efdm.training.settings import Count, Natural, NonNegative, Share, Text, TrainSettings, validated


@validated
class Settings(TrainSettings):
    """Settings of a run. The defaults are the paper's; `Settings.for_encoder` starts from the recipe of a network."""

    content: Text = Field(kw_only=False)
    style: Text = Field(kw_only=False)
    encoder: str = "vgg16"
    method: str = "efdm"
    iterations: Count = 160_000  # paper
    batch: Count = 8  # authors' code
    size: Count = 256  # side of the crops; authors' code
    short_side: Count = 288  # images are resized to this before random crops
    lr: NonNegative = 1e-4  # authors' code
    schedule: Schedule = "inverse-time"
    ema_decay: Share = 0.0  # decay of the exponential moving average of the weights; 0: none
    max_grad_norm: NonNegative = 0.0  # 0: gradients are not clipped
    style_weight: NonNegative = 10.0  # authors' code, for the normalized VGG-19
    sliced_weight: NonNegative = 0.0
    identity_weight: NonNegative = 0.0
    reconstruct: Natural = 0  # iterations of a reconstruction phase before style transfer
    device: Text = Field(default_factory=default_device, kw_only=True)
    precision: Precision = Field(default_factory=lambda values: device_defaults(values["device"])["precision"], kw_only=True)
    speed: Speed = Field(default_factory=lambda values: device_defaults(values["device"])["speed"], kw_only=True)
    vgg: Text = ""  # file of the encoder or loss network; the default is found by `efdm.models.weights`
    start: Text = ""  # file of a network to start from
    start_iteration: Natural = 0  # iterations that network was trained for; schedule, draws and log continue from there
    save_every: Natural = 5000
    preview_every: Natural = 2000  # 0: no previews

    movable: ClassVar[tuple[str, ...]] = (*TrainSettings.movable, "preview_every")
    files: ClassVar[tuple[str, ...]] = ("content", "style", "vgg", "start")

    @classmethod
    def for_encoder(cls, encoder: str, *, content: str, style: str, **changes: Any) -> Settings:
        """Return the recipe of a network, with ``changes``."""
        check_choice("encoder", encoder, tuple(NETWORKS))
        return cls(content=content, style=style, encoder=encoder, **{**NETWORKS[encoder].recipe, **changes})


def check(settings: Settings) -> None:
    """Raise SettingError for settings that contradict each other or name an unknown network or method."""
    check_choice("encoder", settings.encoder, tuple(NETWORKS))
    check_choice("method", settings.method, tuple(STYLE_LOSSES))
    if settings.size > settings.short_side:
        message = f"size must be at most short_side={settings.short_side}, got {settings.size}"
        raise SettingError(message, ("size", "short_side"))
    if settings.identity_weight and settings.batch <= IDENTITIES:
        message = f"batch must be greater than {IDENTITIES} with identity_weight > 0, got {settings.batch}"
        raise SettingError(message, ("batch", "identity_weight"))
