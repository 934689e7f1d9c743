"""``efdm dg train``: one classifier for one's own pictures, without a recipe."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from efdm.apps import dg_open
from efdm.apps.devices import pick_device
from efdm.apps.dg_run import try_weights
from efdm.apps.dg_show import Bars
from efdm.data import datasets
from efdm.data.domains import DomainSet
from efdm.dg import METHODS, Settings, Trained, train
from efdm.dg.methods import check_method, mixes, options_of
from efdm.dg.run import CHECKPOINT, DONE, MODEL
from efdm.dg.settings import check, check_same_run, read_settings
from efdm.dg.training import check_run_folder
from efdm.dg.workers import set_threads
from efdm.lab import load_recipe
from efdm.lab.sweep import RECIPE
from efdm.models.backbones import BACKBONES
from efdm.nn import find_stage, stages_at
from efdm.ops.choices import check_choice
from efdm.text import plural
from efdm.training.files import write_json
from efdm.training.folder import lock_folder

console = Console()
Many = list[str] | None
Word = str | None

EPOCHS, FEWEST, MOST = 50, 300, 5000  # paper: 50 epochs, about 5,000 iterations for PACS
DEFAULTS = {"method": "efdmix", "backbone": "resnet18.tv_in1k", "weights": "timm"}
PICTURES = "pictures.json"


def train_one(
    data: Annotated[
        list[Path],
        typer.Option(help="Pictures: a folder or zip, domain/class/picture; may be repeated. Or digits, the embedded set."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: model, records, log.")],
    method: Annotated[Word, typer.Option(help=f"One of {', '.join(METHODS)}. Default: efdmix.")] = None,
    backbone: Annotated[
        Word, typer.Option(help=f"Any model of timm, or {', '.join(BACKBONES)}. Default: {DEFAULTS['backbone']}.")
    ] = None,
    weights: Annotated[
        Word,
        typer.Option(
            help="A checkpoint to begin with (.safetensors, .pth), timm (may download), or random. "
            f"Default: timm; random for {', '.join(BACKBONES)}."
        ),
    ] = None,
    train_domains: Annotated[
        Many, typer.Option(help="Learn from these, with commas. Default: all but --test-domains.")
    ] = None,
    test_domains: Annotated[
        Many, typer.Option(help="Keep these for the test. Default: all but --train-domains, or none.")
    ] = None,
    stages: Annotated[
        Many,
        typer.Option(help="Where features are mixed, with commas. Default: where they have 1/4, 1/8, 1/16 of the side."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help=f"Default: {EPOCHS} times through the pictures, {FEWEST} to {MOST}.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Pictures in a step. Default: 64, or all if there are fewer.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate. Default: 0.001.")] = None,
    size: Annotated[int | None, typer.Option(min=8, help="Side at which pictures are seen. Default: 224.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of initial weights and of every draw. Default: 0.")] = None,
    set_: Annotated[Many, typer.Option("--set", help="NAME=VALUE, another setting; may be repeated.")] = None,
    device: Annotated[Word, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = None,
    precision: Annotated[Word, typer.Option(help="bf16 or fp32. Default: bf16 on a GPU.")] = None,
    speed: Annotated[Word, typer.Option(help="plain, graph, compile, compile+graph. Default: graph on a GPU.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, with the settings it began with.")
    ] = False,
) -> None:
    """Train one classifier on your own pictures, ready for a domain that it has not seen.

    Leaves model.safetensors for `efdm dg predict` and `efdm dg analyse`. With --test-domains it is told how well it does
    there; without, it learns from all domains, and what it would do in a new one is not known.
    """
    with dg_open.sentences(console, lambda: _interrupted(out, data), out=out):
        given = dg_open.asked(
            set_, method=method, backbone=backbone, weights=weights, iterations=iterations, batch=batch, lr=lr, size=size,
            seed=seed, device=device, precision=precision, speed=speed, stages=dg_open.names(stages),
            train_domains=dg_open.names(train_domains), test_domains=dg_open.names(test_domains),
        )  # fmt: skip
        kind = dg_open.kind_of(data)
        finished = resume and (out / DONE).exists()
        if not finished:
            _check_folder(out, resume=resume)
        began = read_settings(out) if resume else None
        target = pick_device(given.pop("device", "") or (began.device if began else ""))
        known = {**_defaults(kind, given), **given}
        check_method("--method", known["method"])
        # what can be seen to be wrong is told before thousands of pictures are read
        if began is None:
            name, where = _name(kind, data), _domains(dg_open.listing(kind, data), given)
            known = {**dg_open.suited(target, known), **known}
            check(_settings(where, Settings.batch, name, known))
            known = {"stages": _stages(known), **known}
        else:
            settings = replace(began, **given, device=str(target))
            check_same_run(settings, out)
        if finished:
            console.print(f"{out} is finished: {out / MODEL}", soft_wrap=True, markup=False, highlight=False)
            return
        with Bars(console) as bars:
            side = began.size if began else known.get("size", Settings.size)
            pictures = datasets.load_dataset(kind, data, side, progress=bars.reading)
            if began is None:
                settings = _settings(where, len(pictures.select(where["train_domains"], "train")), name, known)
                check(settings)
            with lock_folder(out):
                _same_pictures(out, pictures)
            if target.type == "cpu":
                set_threads(settings.size)
            console.print(_plan(settings, pictures), soft_wrap=True, markup=False, highlight=False)
            used = (*settings.train_domains, *settings.test_domains)
            dg_open.tell_classes(console, pictures, used, settings.test_domains)
            trained = train(settings, pictures, out, resume=resume, progress=bars.step)
        dg_open.tell_skipped(console, pictures, str(out / PICTURES))
        _report(trained, out)


def _check_folder(out: Path, *, resume: bool) -> None:
    if (out / RECIPE).exists():
        raise ValueError(f"{out} holds the trainings of a recipe; choose another folder for one of its own")
    check_run_folder(out, resume=resume)


def _defaults(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is not the same for all: the digits are trained as in their recipe, and timm has no weights for our models."""
    if kind != datasets.DIGITS:
        return {**DEFAULTS, "weights": "random"} if given.get("backbone") in BACKBONES else dict(DEFAULTS)
    settings = load_recipe("digits_demo").settings
    return {"method": DEFAULTS["method"], **{name: value for name, value in settings.items() if name != "device"}}


def _interrupted(out: Path, data: Sequence[Path]) -> str:
    if not (out / CHECKPOINT).exists():
        return "interrupted before the training began; the same command begins again"
    words = ["efdm", "dg", "train", "--resume", *(w for source in data for w in ("--data", str(source))), "-o", str(out)]
    return f"interrupted; go on with: {shlex.join(words)}"


def _name(kind: str, sources: Sequence[Path]) -> str:
    """Of the pictures, for the records: without the folders that they lie in."""
    return kind if kind == datasets.DIGITS else ", ".join(source.resolve().name for source in sources)


def _domains(listed: dg_open.Listing, given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Those to learn from and those to test on; raises for what is none."""
    for name in ("train_domains", "test_domains"):
        option = f"--{name.replace('_', '-')}"
        dg_open.refuse_swapped(option, given.get(name), listed)
        for domain in given.get(name, ()):
            check_choice(option, domain, listed.domain_names)
    test_on = given.get("test_domains")
    train_on = given.get("train_domains") or [d for d in listed.domain_names if d not in (test_on or ())]
    if not train_on:
        raise ValueError(f"--test-domains {','.join(test_on or ())} leaves no domain to learn from; name fewer")
    if test_on is None:
        test_on = [d for d in listed.domain_names if d not in train_on]
    return {"train_domains": tuple(train_on), "test_domains": tuple(test_on)}


def _stages(known: Mapping[str, Any]) -> tuple[str, ...]:
    """Where features are mixed: as was said, or where the backbone has them. Raises for what is no stage of it."""
    model = try_weights(known, option="--size")
    stages = tuple(known.get("stages") or stages_at(model) or Settings.stages)
    if "stages" in known or mixes(known["method"]):
        for stage in stages:
            find_stage(model, stage)
    return stages


def _settings(where: Mapping[str, tuple[str, ...]], count: int, name: str, given: dict[str, Any]) -> Settings:
    """What was given, and for the rest what suits so many pictures to learn from."""
    batches = METHODS[given["method"]].batches
    own: dict[str, Any] = {"batches": batches, "batch": min(Settings.batch, max(1, count))}
    if batches == "domains":
        own |= {"domains_per_batch": min(2, len(where["train_domains"])), "batch": own["batch"] // 2 * 2}
    batch = given.get("batch", own["batch"])
    own["iterations"] = min(MOST, max(FEWEST, EPOCHS * count // max(1, batch)))
    return Settings(**{**own, **given, "data": name, **where})


def _same_pictures(out: Path, data: DomainSet) -> None:
    """Leave in the run what it is trained on; raise where it was begun with something else."""
    told = json.loads(json.dumps({"classes": data.classes, "pictures": data.counts("split"), "skipped": data.skipped}))
    path = out / PICTURES
    if path.exists() and (out / CHECKPOINT).exists():
        if json.loads(path.read_text()) != told:
            raise ValueError(
                f"these are not the pictures that the run in {out} began with, see {path}; give those as --data"
            )
        return
    write_json(path, told)


def _plan(settings: Settings, data: DomainSet) -> str:
    tested = f"tested on {', '.join(settings.test_domains)}" if settings.test_domains else "no domain kept for a test"
    listed = f" ({', '.join(data.classes)})" if len(data.classes) <= dg_open.FEW else ""
    options = ", ".join(f"{name} {value}" for name, value in options_of(settings.method, settings.options).items())
    method = f"{settings.method} ({options})" if options else settings.method
    stages = f" (stages {', '.join(settings.stages)})" if mixes(settings.method) else ""
    length = f"{plural(settings.iterations, 'iteration')} of {plural(settings.batch, 'picture')}"
    return (
        f"{len(data)} pictures of {len(data.classes)} classes{listed}; learning from "
        f"{', '.join(settings.train_domains)}, {tested}\n"
        f"{method} in {settings.backbone}{stages}, weights {Path(settings.weights).name}: {length} on {settings.device}"
    )


def _report(trained: Trained, out: Path) -> None:
    last, settings = trained.records[-1], trained.settings
    said = {"held-out pictures of the domains it learnt from": {d: last["val"][d] for d in settings.train_domains}}
    if settings.test_domains:
        kept = {domain: last["test"][domain] for domain in last.get("official_test", ())}
        said["all pictures of domains it has not seen"] = {d: c for d, c in last["test"].items() if d not in kept}
        said["test pictures, kept apart, of domains it has not seen"] = kept
    for what, counts in ((what, counts) for what, counts in said.items() if counts):
        console.print(f"\naccuracy on {what}", highlight=False)
        for domain, (correct, count) in counts.items():
            share = f"{100 * correct / count:5.1f} %" if count else "    -  "
            console.print(f"  {share}  {domain} ({correct} of {count})", markup=False, highlight=False, soft_wrap=True)
    if not settings.test_domains:
        console.print("no domain was kept for a test, so nothing is known of new ones; --test-domains keeps some")
    console.print(f"\ntrained {settings.method}: {out / MODEL}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"try it: efdm dg predict {out / MODEL} PICTURES", soft_wrap=True, markup=False, highlight=False)
