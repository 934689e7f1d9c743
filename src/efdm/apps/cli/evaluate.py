"""The command ``efdm evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, Words, choice, option, parse_pairs, resolve_device
from efdm.apps.cli.printing import print_error, print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import DEFAULT_NETWORK, PAIRING_HELP
from efdm.data import find_pictures
from efdm.errors import SettingError
from efdm.models import NETWORKS
from efdm.ops import MATCHERS
from efdm.style import report
from efdm.style.candidates import load_candidates
from efdm.style.evaluate import MEASURED_AT, Pairing, evaluate, make_pairs
from efdm.style.measures import load_metrics
from efdm.style.optimize import OPTIMIZERS


def style(
    out: Annotated[Path, option("Folder for records, outputs, table, plot and sheets.", "--out", "-o")],
    content: Annotated[str, option("Photographs: a folder or a zip.")] = "",
    style: Annotated[str, option("Paintings: a folder or a zip.")] = "",
    model: Annotated[Words, choice(NETWORKS, "Trained network. Repeat for several.")] = None,
    network: Annotated[Words, option("NAME=FILE of `efdm train style`, or a decoder.pth. Repeat for several.")] = None,
    method: Annotated[Words, choice(MATCHERS, "Repeat for several. Default: the method a network was trained with.")] = None,
    strength: Annotated[str, option("Strengths from 0 to 1, comma-separated: 0,0.25,0.5,0.75,1.")] = "1",
    optimizer: Annotated[Words, choice(OPTIMIZERS, "Optimize the pixels of each result. Repeat for several.")] = None,
    iterations: Annotated[int | None, option("Iterations of the optimizers. Default: their own.", min=1)] = None,
    pairs: Annotated[int, option("Maximum number of pairs.", min=1)] = 60,
    pairing: Annotated[str, choice(get_args(Pairing), PAIRING_HELP)] = "order",
    size: Annotated[int, option("Short side of the stylized pictures; 0 keeps their own size.", min=0)] = 512,
    measured_at: Annotated[int, option("Short side at which pictures are measured.", min=32)] = MEASURED_AT,
    vgg: Annotated[str, option("ImageNet weights of VGG-16, for metrics, optimizers and vgg16. See `efdm weights`.")] = "",
    device: Device = None,
    table: Annotated[bool, option("Only render the records in OUT again.", "--table")] = False,
) -> None:
    """Stylize pairs of pictures, and measure how well content is preserved and style is matched.

    Repeat an interrupted command to continue: pairs with a record are skipped.
    """
    failed: list[Exception] = []

    def skip(error: Exception) -> None:
        failed.append(error)
        print_error(error)

    interrupted = f"interrupted; repeat the command to continue, or add --table to render the records in {out}"
    with report_errors(interrupted):
        if not table:
            target = resolve_device(device)
            if not content or not style:
                raise SettingError("photographs and paintings are required", ("content", "style"))
            contents, styles = find_pictures(content), find_pictures(style)
            chosen = make_pairs(contents, styles, pairing=pairing, most=pairs)  # type: ignore[arg-type]
            candidates = load_candidates(
                model or ([] if network or optimizer else [DEFAULT_NETWORK]), parse_pairs("network", network),
                methods=method or (), strengths=_strengths(strength), optimizers=optimizer or (), iterations=iterations,
                vgg=vgg or None, device=target,
            )  # fmt: skip
            metrics = load_metrics(vgg=vgg or None, device=target)
            with show_progress() as progress:
                evaluate(
                    chosen, candidates, metrics, out, size=size or None, measured_at=measured_at, device=target,
                    progress=progress, unreadable=skip,
                )  # fmt: skip
        written = report.render(out)
    print_text((out / "table.md").read_text())
    print_text("written: " + ", ".join(map(str, written)))
    if out / "tradeoff.png" not in written:
        print_text("The plot needs matplotlib: pip install 'efdm[evaluate]'")
    if failed:
        raise typer.Exit(1)


def _strengths(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"expected numbers from 0 to 1, comma-separated, got {text!r}", "strength") from error
