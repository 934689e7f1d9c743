"""``efdm reid train``."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli import recognition_options as common
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, Word, Words, option, parse_pairs
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_printing import print_data_warnings, print_run, print_scores, print_trials
from efdm.apps.cli.training import joined_processes, resume_hint
from efdm.lab.reid_preparation import EPOCHS, MIN_ITERATIONS, prepare_embedder, save_trials
from efdm.models.backbones import BACKBONES
from efdm.recognition.model_file import MODEL
from efdm.recognition.workers import set_threads
from efdm.reid import METHODS, PersonSets, Settings, train
from efdm.text import plural


def train_command(
    context: typer.Context,
    data: Annotated[list[str], option(f"Training sets. {common.SETS_HELP}")],
    out: Annotated[Path, option("Folder of the run, for the model, records and log.", "--out", "-o")],
    test: Annotated[Words, option("Test sets, as --data. Default: none.")] = None,
    method: Annotated[Word, option(f"One of {', '.join(METHODS)}. Default: efdmix-flow.")] = None,
    backbone: Annotated[Word, option(f"Any timm model, or {', '.join(BACKBONES)}. Default: {Settings.backbone}.")] = None,
    weights: Annotated[Word, option("A .safetensors or .pth file, timm (may download), or random (the default).")] = None,
    stages: Annotated[Words, option("Stages after which features are mixed. Default: the first two.")] = None,
    iterations: Annotated[int | None, option(f"Default: {EPOCHS} epochs, at least {MIN_ITERATIONS}.", min=1)] = None,
    batch: Annotated[int | None, option(f"Pictures per step, over all processes. Default: {Settings.batch}.", min=1)] = None,
    lr: Annotated[float | None, option(f"Learning rate. Default: {Settings.lr}.")] = None,
    size: Annotated[Word, option("Input height,width in pixels. Default: 256,128.")] = None,
    seed: Annotated[int | None, option("Seed of the initial weights and all random draws. Default: 0.")] = None,
    split: Annotated[int, option("One of several published splits, such as the 10 of GRID.", min=0)] = 0,
    layout: common.Layouts = None,
    set_: common.Set = None,
    device: Device = None,
    precision: Annotated[Word, option("bf16, fp32 or fp64. Default: bf16 on a GPU.")] = None,
    speed: Annotated[Word, option("plain, graph, compile or compile+graph. Default: graph on a GPU.")] = None,
    resume: Annotated[bool, option("Continue the run in --out with the same settings.", "--resume")] = False,
) -> None:
    """Train a network on pictures of people.

    Writes model.safetensors for `efdm reid test` and `efdm reid search`. With --test, mAP and CMC on those sets are
    reported, by the official protocol where a set has queries and a gallery. To use several GPUs, start the command with
    torchrun.
    """
    with report_errors(partial(resume_hint, out)), joined_processes(device) as device:
        changes = common.collect_settings({**context.params, "device": device}, "reid")
        with show_progress() as progress:
            settings, sets = prepare_embedder(
                common.parse_sets(data), common.parse_sets(test, "test"), out, changes, split=split,
                layouts=parse_pairs("layout", layout, "LAYOUT"), resume=resume, progress=progress,
            )  # fmt: skip
            if sets is None:
                print_text(f"the run is finished: {out / MODEL}")
                return
            _print_plan(settings, sets)
            set_threads(settings)
            trained = train(settings, sets, out, resume=resume, progress=progress)
        if settings.test_domains:
            print_scores(trained.records[-1]["test"])
        print_trials(save_trials(sets, settings.protocols, out, settings.protocol_seed))
        print_text(f"\ntrained {settings.method}: {out / MODEL}")
        print_text(f"next: efdm reid search QUERY GALLERY --model {shlex.quote(str(out / MODEL))} -o sheet.png")


def _print_plan(settings: Settings, data: PersonSets) -> None:
    for name in settings.train_domains:
        count = data[name].counts()["train"]
        cameras = plural(count["cameras"], "camera")
        print_text(f"{name}: {count['pictures']} training pictures of {count['people']} people, {cameras}")
    print_run(settings)
    print_data_warnings(data)
