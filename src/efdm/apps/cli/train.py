"""The command ``efdm train``."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, choice, given_fields, option
from efdm.apps.cli.printing import print_text, print_warning
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import DEFAULT_NETWORK
from efdm.apps.cli.training import joined_processes, resume_hint
from efdm.errors import SettingError
from efdm.models import NETWORKS
from efdm.nn.losses import STYLE_LOSSES
from efdm.style import training
from efdm.style.settings import Settings
from efdm.text import plural
from efdm.training import PRECISIONS, SPEEDS
from efdm.training.device import default_device
from efdm.training.folder import DONE, ENVIRONMENT
from efdm.training.schedules import SCHEDULES
from efdm.training.settings import read_settings


def _default_iterations() -> str:
    return ", ".join(f"{row.recipe.get('iterations', Settings.iterations)} for {name}" for name, row in NETWORKS.items())


def style(
    context: typer.Context,
    out: Annotated[Path, option("Folder for the network, the log, previews and checkpoints.", "--out", "-o")],
    content: Annotated[str, option("Photographs: a folder or a zip.")] = "",
    style: Annotated[str, option("Paintings: a folder or a zip.")] = "",
    encoder: Annotated[str | None, choice(NETWORKS, f"Network to train. Default: {DEFAULT_NETWORK}.")] = None,
    method: Annotated[str | None, choice(STYLE_LOSSES, "Match and style loss. Default: efdm.")] = None,
    iterations: Annotated[
        int | None, option(f"Default: {_default_iterations()}, after those of --reconstruct.", min=1)
    ] = None,
    batch: Annotated[int | None, option("Contents per step, with as many styles, over all processes.", min=1)] = None,
    size: Annotated[int | None, option("Side of the random crops in pixels.", min=1)] = None,
    short_side: Annotated[int | None, option("Short side to which pictures are resized before cropping.", min=1)] = None,
    lr: Annotated[float | None, option("Learning rate.")] = None,
    schedule: Annotated[str | None, choice(SCHEDULES, "Schedule of the learning rate.")] = None,
    style_weight: Annotated[float | None, option("Weight of the style loss.")] = None,
    sliced_weight: Annotated[float | None, option("For small: weight of the style loss along random directions.")] = None,
    identity_weight: Annotated[float | None, option("For small: weight of the loss of contents as their own style.")] = None,
    reconstruct: Annotated[int | None, option("Iterations of reconstruction first. Default: 2500 for small.", min=0)] = None,
    seed: Annotated[int | None, option("Seed of initial weights and random draws. Default: 0.")] = None,
    precision: Annotated[str | None, choice(PRECISIONS, "Default: bf16 on a GPU, otherwise fp32.")] = None,
    speed: Annotated[str | None, choice(SPEEDS, "Default: graph on a GPU, otherwise plain.")] = None,
    device: Device = None,
    vgg: Annotated[str, option("ImageNet weights of the VGG. See `efdm weights`.")] = "",
    start: Annotated[str, option("A network.safetensors to start from.")] = "",
    start_iteration: Annotated[int | None, option("Iterations that --start was trained for.")] = None,
    resume: Annotated[bool, option("Resume the run in OUT; files, --device and --speed may change.", "--resume")] = False,
    log_every: Annotated[int | None, option("Iterations between log entries. Default: 50.", min=1)] = None,
    save_every: Annotated[int | None, option("Iterations between checkpoints. Default: 5000.", min=1)] = None,
    preview_every: Annotated[int | None, option("Iterations between previews; 0: none. Default: 2000.", min=0)] = None,
) -> None:
    """Train a style transfer network on your own pictures.

    Settings default to the recipe of the encoder. To use several GPUs, start the command with torchrun.
    """
    changes = {name: value for name, value in given_fields(context, Settings).items() if value not in (None, "")}
    with report_errors(partial(resume_hint, out)):
        started = read_settings(Settings, out) if resume else None
        if resume and (out / DONE).exists():
            print_text(f"the run is finished: {out / 'network.safetensors'}")
            return
        if started is None and not {"content", "style"} <= changes.keys():
            raise SettingError("photographs and paintings are required", ("content", "style"))
        requested = device or (started.device if started else default_device())
        with joined_processes(requested) as target, show_progress() as progress:
            changes["device"] = str(target)
            if started is None:
                settings = Settings.for_encoder(changes.pop("encoder", DEFAULT_NETWORK), **changes)
            else:
                settings = dataclasses.replace(started, **changes)
            training.train(settings, out, resume=resume, progress=progress)
            if skipped := json.loads((out / ENVIRONMENT).read_text())["skipped"]:
                print_warning(f"{plural(len(skipped), 'unreadable picture')} skipped; see {out / ENVIRONMENT}")
            print_text(f"trained {settings.encoder}: {out / 'network.safetensors'}")
