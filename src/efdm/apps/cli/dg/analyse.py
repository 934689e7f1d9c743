"""``efdm dg analyse``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from efdm.apps.cli.options import Device, Paths, Words, option, resolve_device
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import DATA_HELP, MODEL_HELP, StorageOption, parse_names
from efdm.lab.analyses import ANALYSES, analyse_classifier


def analyse(
    analysis: Annotated[str, typer.Argument(help="; ".join(f"{name}: {row.about}" for name, row in ANALYSES.items()) + ".")],
    checkpoint: Annotated[Path, option(MODEL_HELP)],
    out: Annotated[Path, option("Folder for the results.", "--out", "-o")],
    data: Annotated[Paths, option(f"{DATA_HELP} Not needed for the digits.")] = None,
    stage: Annotated[
        Words, option("Stages, comma-separated. Default: the first mixed one (ties: all, projection: all mixed).")
    ] = None,
    channel: Annotated[str, option("histogram only: a channel number, typical, or farthest.")] = "",
    perplexity: Annotated[float | None, option("tsne only: the perplexity of t-SNE.")] = None,
    per_domain: Annotated[int | None, option("Pictures per domain. Default: set by the analysis.", min=1)] = None,
    domains: Annotated[Words, option("Domains, comma-separated. Default: all.")] = None,
    classes: Annotated[Words, option("Classes, comma-separated. Default: all.")] = None,
    storage: StorageOption = "memory",
    device: Device = None,
) -> None:
    """Analyse the features of a trained classifier.

    Writes the numbers and a figure, or a table for projection. If the classifier has ReLUs, ties also analyses it with PReLU
    in their place.
    """
    options: dict[str, Any] = {} if perplexity is None else {"perplexity": perplexity}
    if channel:
        options["channel"] = int(channel) if channel.isdecimal() else channel
    with show_progress() as progress:
        numbers = analyse_classifier(
            analysis, checkpoint, data or [], out, stages=parse_names("stage", stage),
            domains=parse_names("domains", domains), classes=parse_names("classes", classes), per_domain=per_domain,
            storage=storage, device=resolve_device(device), progress=progress, **options,
        )  # fmt: skip
    row = ANALYSES[analysis]
    for line in (*row.summary(numbers).splitlines(), "", *(out / file for file in row.files)):
        print_text(line)
