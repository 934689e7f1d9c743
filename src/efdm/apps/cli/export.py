"""The command ``efdm export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli.options import option
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import Vgg, Weights
from efdm.models import NETWORKS
from efdm.models.weights import pretrained
from efdm.style.export import PARTS, export_onnx


def export(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(NETWORKS)}.")],
    out: Annotated[Path, option("The ONNX file.", "--out", "-o")],
    part: Annotated[str, option("; ".join(f"{name}: {row.about}" for name, row in PARTS.items()) + ".")] = "whole",
    weights: Weights = None,
    vgg: Vgg = None,
) -> None:
    """Write a style transfer network as an ONNX file, and compare it with PyTorch.

    Contents and styles may have any size. Pictures are RGB in [0, 1] with shape (1, 3, height, width), and the strength
    from 0 to 1 has shape (1,).
    """
    network = pretrained(model, weights=weights, vgg=vgg)
    with show_progress() as progress:
        check = export_onnx(network, out, part, progress=progress)  # type: ignore[arg-type]
    height, width = check.size
    print_text(f"{out}: {out.stat().st_size / 1e6:.1f} MB, mean difference from PyTorch {check.difference * 255:.3f}/255")
    print_text(f"{height} x {width}: {check.seconds:.2f} s in onnxruntime, {check.torch_seconds:.2f} s in PyTorch")
