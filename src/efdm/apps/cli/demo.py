"""The command ``efdm demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from efdm.apps.cli.options import Device, option, resolve_device
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import Model, Vgg, Weights
from efdm.style import Stylizer
from efdm.style.demo import write_sheets


def demo(
    out: Annotated[Path, option("Folder for the sheets.", "--out", "-o")],
    model: Model = "",
    weights: Weights = None,
    vgg: Vgg = None,
    side: Annotated[int, option("Side of each picture in pixels.", min=32)] = 256,
    device: Device = None,
) -> None:
    """Stylize the pictures in the package: a contact sheet, a sweep of strengths and mixtures of four styles."""
    stylizer = Stylizer.from_pretrained(model or None, resolve_device(device), weights, vgg)
    with show_progress() as progress:
        written = write_sheets(stylizer, out, side=side, progress=progress)
    for path in written:
        print_text(path)
