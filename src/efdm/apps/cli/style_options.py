"""Options of the commands that use a style transfer network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from efdm.apps.cli.options import choice, option
from efdm.models import NETWORKS

DEFAULT_NETWORK = next(iter(NETWORKS))
PAIRING_HELP = "order: the i-th content with the i-th style; grid: all combinations."
Model = Annotated[str, choice(NETWORKS, f"Network. Default: that of --weights, or {DEFAULT_NETWORK}.")]
Weights = Annotated[Path | None, option("Network of `efdm train style`, or pytorch-AdaIN's decoder.pth.")]
Vgg = Annotated[Path | None, option("Weights of the VGG encoder, for models that need one. See `efdm weights`.")]
