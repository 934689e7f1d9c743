"""``efdm dg analyse``: what can be seen in the features of a trained model."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from efdm.apps import dg_open
from efdm.apps.devices import pick_device
from efdm.apps.dg_show import Bars
from efdm.data import datasets
from efdm.dg import load_classifier
from efdm.lab.analyses import ANALYSES, Analysis, pick
from efdm.ops.choices import check_choice

console = Console()


def analyse(
    analysis: Annotated[str, typer.Argument(help="; ".join(f"{name}: {row.about}" for name, row in ANALYSES.items()) + ".")],
    checkpoint: Annotated[Path, typer.Option(help="model.safetensors of a training, or the folder of the training.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and its numbers.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Pictures: a folder or zip, domain/class/picture; may be repeated. Not needed for the digits."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            help="Where to look, such as stage1 or layer1. Default: where the model was mixed first; for ties everywhere, "
            "and it may be repeated."
        ),
    ] = None,
    channel: Annotated[str, typer.Option(help="Of a histogram: a number, typical, or farthest.")] = "",
    perplexity: Annotated[float | None, typer.Option(help="Of t-SNE.")] = None,
    per_domain: Annotated[int | None, typer.Option(min=1, help="Pictures of each domain. Default: enough.")] = None,
    domains: Annotated[list[str] | None, typer.Option(help="Some domains, with commas. Default: all.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = "",
) -> None:
    """Draw what is in the features of a trained model, and write the numbers behind it."""
    with dg_open.sentences(console, lambda: "interrupted; the same command begins again", out=out):
        check_choice("analysis", analysis, ANALYSES)
        row = ANALYSES[analysis]
        asked: dict[str, Any] = {"stages": stage, "channel": channel, "perplexity": perplexity}
        options = _options(analysis, row, {name: value for name, value in asked.items() if value not in (None, "", [])})
        target = pick_device(device)
        path = dg_open.model_file(checkpoint)
        classifier = load_classifier(path, target)
        told, size = classifier.settings, classifier.size
        sources = data or ([Path(datasets.DIGITS)] if told["data"] == datasets.DIGITS else [])
        if not sources:
            raise ValueError(f"{path} was trained on {told['data']}; give such pictures as --data")
        with Bars(console) as bars:
            pictures = datasets.load_dataset(
                dg_open.kind_of(sources), sources, classifier.stored_size, progress=bars.reading
            )
        takes = inspect.signature(row.analyse).parameters
        if "stages" in takes:
            options.setdefault("stages", classifier.stages)
        elif told["stages"]:
            options.setdefault("stage", told["stages"][0])
        dg_open.refuse_swapped("--domains", dg_open.names(domains), pictures)
        indices = pick(pictures, per_domain or row.per_domain, domains=dg_open.names(domains))
        with console.status(f"{analysis} of {len(indices)} pictures"):
            name = f"{told['backbone']}, {told['method']}"
            numbers = row.analyse(classifier.model, pictures, indices, size, out, name=name, **options)
        for line in (*row.summary(numbers), ""):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        for file in row.files:
            console.print(str(out / file), soft_wrap=True, markup=False, highlight=False)


def _options(analysis: str, row: Analysis, given: dict[str, Any]) -> dict[str, Any]:
    """What was asked for under the names that the analysis has for it."""
    takes = inspect.signature(row.analyse).parameters
    if "stages" in given and "stage" in takes:
        if len(given["stages"]) > 1:
            raise ValueError(f"{analysis} looks at one stage; give --stage once")
        given["stage"] = given.pop("stages")[0]
    if "channel" in given and given["channel"].isdecimal():
        given["channel"] = int(given["channel"])
    if other := [name for name in given if name not in takes]:
        raise ValueError(f"{analysis} takes no --{other[0]}; leave it out")
    return given
