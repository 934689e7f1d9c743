"""``efdm dg run``: the trainings of a recipe, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import nn

from efdm import lab
from efdm.apps import dg_open
from efdm.apps.devices import pick_device
from efdm.apps.dg_show import Bars, show_tables
from efdm.data import datasets
from efdm.data.domains import DomainSet
from efdm.data.images import read_error
from efdm.data.pacs import PICTURES
from efdm.dg import Settings
from efdm.dg.methods import check_method
from efdm.dg.workers import set_threads
from efdm.lab.sweep import RECIPE, check_folder
from efdm.models.backbones import build_backbone
from efdm.ops.choices import check_choice
from efdm.training import PRECISIONS, SPEEDS

console = Console()
Many = list[str] | None
Word = str | None


def run(
    recipe: Annotated[str, typer.Argument(help="The name of a recipe (see `efdm dg list`) or the path of its file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: records, models, logs.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Pictures: a folder or a zip, domain/class/picture. May be repeated, for a zip of each domain."),
    ] = None,
    weights: Annotated[
        Word,
        typer.Option(help="A checkpoint to begin with (.safetensors, .pth), or timm, or random. Default: the recipe's."),
    ] = None,
    seeds: Annotated[
        Word, typer.Option(help="5: the seeds 0 to 4; 0,3: those two; 3,: that one. Default: the recipe's.")
    ] = None,
    methods: Annotated[Many, typer.Option(help="Some rows of the recipe, with commas. Default: all.")] = None,
    domains: Annotated[Many, typer.Option(help="Some columns of the recipe, with commas. Default: all.")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Default: the recipe's.")] = None,
    set_: Annotated[Many, typer.Option("--set", help="NAME=VALUE, another setting; may be repeated.")] = None,
    device: Annotated[
        Word, typer.Option(help="cpu, cuda, cuda:1. Default: the recipe's, or the GPU if there is one.")
    ] = None,
    precision: Annotated[Word, typer.Option(help=f"One of {', '.join(PRECISIONS)}. Default: bf16 on a GPU.")] = None,
    speed: Annotated[
        Word, typer.Option(help=f"One of {', '.join(SPEEDS)}. Default: compile+graph on a GPU, plain elsewhere.")
    ] = None,
    lanes: Annotated[int, typer.Option(min=1, help="Trainings side by side: on one GPU, or each on cores of its own.")] = 1,
    split: Annotated[
        Word,
        typer.Option(
            help="Of PACS: official (the default) needs the authors' lists, own draws a tenth of each class for validation."
        ),
    ] = None,
    lists: Annotated[Path | None, typer.Option(help="Folder of the lists of PACS. Default: looked for near --data.")] = None,
    copy: Annotated[Word, typer.Option(help="Of PACS: complete (the default), or partial to take what is there.")] = None,
    note: Annotated[Many, typer.Option(help="A sentence to stand under the tables; may be repeated.")] = None,
) -> None:
    """Train what a recipe asks for and print its tables.

    A run that was interrupted goes on when the same command is given again; what is finished is not repeated. Another go may
    take other --seeds, --methods or --domains: the tables show all.
    """
    with dg_open.sentences(console, lambda: _interrupted(out), out=out):
        check_folder(out)
        chosen = lab.load_recipe(recipe)
        pacs = _of_pacs(chosen, split=split, lists=lists, copy=copy)
        _check_sources(chosen, data or [])
        told = dg_open.asked(set_, weights=weights, iterations=iterations, device=device, precision=precision, speed=speed)
        own = {**chosen.settings, **told}
        target = pick_device(str(own.get("device", "")))
        told = {**dg_open.suited(target, own, trainings="many"), **told, "device": str(target)}
        parts: dict[str, Any] = {
            "seeds": dg_open.seeds(seeds),
            "methods": dg_open.names(methods, list(chosen.rows)),
            "domains": dg_open.names(domains),
        }
        _check_parts(chosen, data or [], parts)
        if not (out / RECIPE).exists():  # later the file may be gone: a run that was begun does not need it
            if gone := [source for source in data or [] if not source.exists()]:
                raise read_error(FileNotFoundError(), gone[0])
            try_weights(own)
        with Bars(console) as bars:
            size = told.get("size") or chosen.picture_size or own.get("size", Settings.size)
            chosen, pictures = _pictures(chosen, data or [], size, bars, pacs)
            dg_open.tell_classes(console, pictures, pictures.domain_names)
            try:
                study = go(chosen, pictures, out, bars, lanes=lanes, notes=note or [], parts=parts, changes=told)
            except FloatingPointError:  # of some trainings; the others are finished
                bars.stop()
                show_tables(console, lab.tables(lab.read_study(out)))
                raise
        dg_open.tell_skipped(console, pictures, str(out / "environment.json"))
        show_tables(console, lab.tables(study))
        console.print(f"\nrecords, models and logs: {out}", soft_wrap=True, markup=False, highlight=False)
        console.print(f"the tables again: efdm dg table {out}", soft_wrap=True, markup=False, highlight=False)


def _interrupted(out: Path) -> str:
    shows = f"; efdm dg table {out} shows what is finished" if (out / RECIPE).exists() else ""
    return f"interrupted; the same command goes on where it stopped{shows}"


def try_weights(settings: Mapping[str, Any], *, option: str = "--set size=N") -> nn.Module:
    """The backbone. Raises for one that is not there, for such weights, and for one that does not take pictures of the
    size (which ``option`` changes), before thousands of pictures are read."""
    name, size = settings.get("backbone", Settings.backbone), settings.get("size", Settings.size)
    model = build_backbone(name, 2, weights=settings.get("weights", Settings.weights))
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, 3, size, size))
    except (AssertionError, RuntimeError, ValueError) as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            f"{name} cannot take pictures of {size} x {size} pixels ({why}); change it with {option}"
        ) from error
    return model.train()


def _of_pacs(recipe: lab.Recipe, **given: Any) -> dict[str, Any]:
    """The options that PACS alone has, as far as they were given; raises where they would do nothing."""
    given = {name: value for name, value in given.items() if value is not None}
    for name, choices in {"split": ("official", "own"), "copy": ("complete", "partial")}.items():
        if name in given:
            check_choice(f"--{name}", given[name], choices)
    if given and recipe.data != datasets.PACS:
        options = " and ".join(f"--{name}" for name in given)
        raise ValueError(f"{options}: only PACS has such, and {recipe.name} is of {recipe.data}; leave that out")
    if "lists" in given and given.get("split") == "own":
        raise ValueError("--split own draws the split itself and reads no lists; leave --lists or --split out")
    return given


def _check_sources(recipe: lab.Recipe, sources: list[Path]) -> None:
    if recipe.data == datasets.DIGITS and sources:
        raise ValueError(f"{recipe.name} has its digits embedded; leave --data out")
    if recipe.data != datasets.DIGITS and not sources:
        like = f"{', '.join(PICTURES)}, and its lists" if recipe.data == datasets.PACS else "domain/class/picture"
        raise ValueError(f"{recipe.name} needs the pictures of {recipe.data}; give their folder or zips as --data ({like})")


def _check_parts(recipe: lab.Recipe, sources: list[Path], parts: Mapping[str, Any]) -> None:
    """Raise for rows and columns that there are not, before thousands of pictures are read."""
    for row in parts["methods"] or ():
        check_method("--methods", row, recipe.rows)
    if parts["domains"]:
        listed = dg_open.listing(recipe.data, sources)
        dg_open.refuse_swapped("--domains", parts["domains"], listed)
        for domain in parts["domains"]:
            check_choice("--domains", domain, listed.domain_names)


def _pictures(
    recipe: lab.Recipe, sources: list[Path], size: int, bars: Bars, pacs: Mapping[str, Any]
) -> tuple[lab.Recipe, DomainSet]:
    """The pictures of a recipe, and the recipe with their name: another split or a part of PACS is not PACS."""
    data = datasets.load_dataset(recipe.data, sources, size, progress=bars.reading, **pacs)
    special = ["own split"] * (pacs.get("split") == "own") + ["partial copy"] * (pacs.get("copy") == "partial")
    return replace(recipe, data=", ".join([recipe.data, *special])), data


def go(
    recipe: lab.Recipe,
    data: DomainSet,
    out: Path,
    bars: Bars,
    *,
    lanes: int,
    notes: Sequence[str] = (),
    parts: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> lab.Study:
    """`lab.run` with bars; on a CPU, several lanes are processes."""
    on_cpu = torch.device(changes["device"]).type == "cpu"
    if on_cpu:
        set_threads(data.images.shape[-1])
    return lab.run(
        recipe, data, out, lanes=lanes, notes=notes, progress=bars.report, **parts, **changes,
    )  # fmt: skip
