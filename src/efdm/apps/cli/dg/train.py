"""``efdm dg train``."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, Word, Words, option
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import DATA_HELP, Set, StorageOption, collect_settings
from efdm.apps.cli.recognition_printing import print_accuracy, print_data_warnings, print_run, print_skipped
from efdm.apps.cli.training import joined_processes, resume_hint
from efdm.data.domains import DomainSet
from efdm.data.images import PictureError
from efdm.dg import METHODS, Settings, Trained, train
from efdm.lab.dg_preparation import EPOCHS, MAX_ITERATIONS, MIN_ITERATIONS, PICTURES_FILE, prepare_classifier
from efdm.models.backbones import BACKBONES
from efdm.recognition.model_file import MODEL
from efdm.recognition.workers import set_threads
from efdm.training.folder import CHECKPOINT

MAX_CLASSES = 12  # listed by name
LIMITS = f"from {MIN_ITERATIONS} to {MAX_ITERATIONS} iterations"
RANDOM = ", ".join(["digits", *BACKBONES])


def train_command(
    context: typer.Context,
    data: Annotated[list[Path], option(f"{DATA_HELP} The word digits selects the built-in data set.")],
    out: Annotated[Path, option("Folder of the run, for the model, records and log.", "--out", "-o")],
    method: Annotated[Word, option(f"One of {', '.join(METHODS)}. Default: efdmix-flow.")] = None,
    backbone: Annotated[
        Word, option(f"Any timm model, or {', '.join(BACKBONES)}. Default: resnet18.tv_in1k (digits: tiny).")
    ] = None,
    weights: Annotated[Word, option(f"A file, timm (may download) or random. Default: timm ({RANDOM}: random).")] = None,
    train_domains: Annotated[Words, option("Training domains, comma-separated. Default: all except --test-domains.")] = None,
    test_domains: Annotated[Words, option("Held-out domains. Default: all except --train-domains, or none.")] = None,
    stages: Annotated[Words, option("Stages after which features are mixed. Default: the last of stride 4, 8, 16.")] = None,
    iterations: Annotated[int | None, option(f"Default: {EPOCHS} epochs, {LIMITS} (digits: 600).", min=1)] = None,
    batch: Annotated[int | None, option("Pictures per step, over all processes. Default: at most 64.", min=1)] = None,
    lr: Annotated[float | None, option("Learning rate. Default: 0.001 (digits: 0.1).")] = None,
    size: Annotated[int | None, option("Input size in pixels. Default: 224 (digits: 32).", min=8)] = None,
    seed: Annotated[int | None, option("Seed of the initial weights and all random draws. Default: 0.")] = None,
    storage: StorageOption = "memory",
    set_: Set = None,
    device: Device = None,
    precision: Annotated[Word, option("bf16, fp32 or fp64. Default: bf16 on a GPU (digits: fp32).")] = None,
    speed: Annotated[Word, option("plain, graph, compile, compile+graph. Default: graph on a GPU (digits: plain).")] = None,
    resume: Annotated[bool, option("Continue the run in --out with the same settings.", "--resume")] = False,
) -> None:
    """Train one classifier on your own pictures.

    Writes model.safetensors for `efdm dg predict` and `efdm dg analyse`. With --test-domains, accuracy on those domains is
    reported. Otherwise the classifier is trained on all domains, and its accuracy on a new domain is not measured. To use
    several GPUs, start the command with torchrun.
    """
    with report_errors(partial(resume_hint, out)), joined_processes(device) as device:
        changes = collect_settings({**context.params, "device": device}, "dg")
        with show_progress() as progress:
            settings, pictures = prepare_classifier(data, out, changes, resume=resume, storage=storage, progress=progress)
            if pictures is None:
                print_text(f"the run is finished: {out / MODEL}")
                return
            _print_plan(settings, pictures)
            set_threads(settings)
            try:
                trained = train(settings, pictures, out, resume=resume, progress=progress)
            except PictureError as error:  # of a stream
                resumable = (out / CHECKPOINT).exists()  # with all pictures only
                remedy = "replace it, and repeat the command with --resume" if resumable else "replace or delete it"
                raise PictureError(f"{error}; {remedy}") from error
        print_skipped(pictures, out / PICTURES_FILE)
        _print_results(trained, out)


def _print_plan(settings: Settings, data: DomainSet) -> None:
    classes = f" ({', '.join(data.classes)})" if len(data.classes) <= MAX_CLASSES else ""
    held_out = ", ".join(settings.test_domains) or "none"
    used = (*settings.train_domains, *settings.test_domains)
    print_text(
        f"{len(data.select(used))} pictures of {len(data.classes)} classes{classes}; training domains: "
        f"{', '.join(settings.train_domains)}; held-out domains: {held_out}"
    )
    print_run(settings)
    print_data_warnings(data, used, settings.test_domains)


def _print_results(trained: Trained, out: Path) -> None:
    record, settings = trained.records[-1], trained.settings
    official = {domain: record["test"][domain] for domain in record.get("official_test", ())}
    whole = {domain: counts for domain, counts in record["test"].items() if domain not in official}
    print_accuracy("held-out pictures of the training domains", {d: record["val"][d] for d in settings.train_domains})
    if whole:
        print_accuracy("all pictures of the held-out domains", whole)
    if official:
        print_accuracy("the official test pictures of the held-out domains", official)
    if not settings.test_domains:
        print_text("no domain was held out, so accuracy on a new domain is unknown; --test-domains holds some out")
    print_text(f"\ntrained {settings.method}: {out / MODEL}")
    print_text(f"next: efdm dg predict {shlex.quote(str(out / MODEL))} PICTURES")
