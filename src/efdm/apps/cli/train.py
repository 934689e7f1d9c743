"""``efdm train``: training with a progress bar."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from rich.console import Console

from efdm.apps import bars
from efdm.apps.devices import pick_device
from efdm.apps.networks import with_option
from efdm.apps.tell import tell
from efdm.models import NETWORKS
from efdm.ops import MATCHERS
from efdm.progress import Progress
from efdm.style import training
from efdm.style.settings import read_settings
from efdm.style.step import processes
from efdm.training.device import default_device

ENCODER = "small"

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train a model of your own.")
console = Console()


def _lengths() -> str:
    """How long each recipe trains."""
    lengths = {name: training.Settings.for_encoder(name, content="", style="").iterations for name in NETWORKS}
    return ", ".join(f"{length} for {name}" for name, length in lengths.items())


@app.callback()
def _root() -> None:
    """Train a model of your own."""


@app.command()
def style(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: network, records, previews.")],
    content: Annotated[str, typer.Option(help="Photographs: a folder or a zip.")] = "",
    style: Annotated[str, typer.Option(help="Paintings: a folder or a zip.")] = "",
    encoder: Annotated[str | None, typer.Option(help=f"One of {', '.join(NETWORKS)}; default: {ENCODER}.")] = None,
    method: Annotated[str | None, typer.Option(help=f"One of {', '.join(MATCHERS)}; default: efdm.")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help=f"Default: {_lengths()}.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Pictures of each kind in a step; shared by all processes.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Side of the random crops.")] = None,
    short_side: Annotated[int | None, typer.Option(min=1, help="Pictures are resized to this before cropping.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    schedule: Annotated[str | None, typer.Option(help=f"One of {', '.join(training.SCHEDULES)}.")] = None,
    style_weight: Annotated[float | None, typer.Option(help="More: more style, less content.")] = None,
    sliced_weight: Annotated[float | None, typer.Option(help="Style along random directions (small).")] = None,
    identity_weight: Annotated[float | None, typer.Option(help="Content styled by itself should stay (small).")] = None,
    reconstruct: Annotated[int | None, typer.Option(min=0, help="Iterations of reconstruction first (small).")] = None,
    seed: Annotated[int | None, typer.Option(help="Of initial weights and of every draw; default: 0.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16 or fp32; default: bf16 on a GPU.")] = None,
    speed: Annotated[str | None, typer.Option(help="plain, compile, graph, compile+graph; default: graph on a GPU.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; default: the GPU if there is one.")] = "",
    vgg: Annotated[str, typer.Option(help="File of the VGG; default: looked up, see `efdm weights`.")] = "",
    start: Annotated[str, typer.Option(help="A network.safetensors to begin with.")] = "",
    start_iteration: Annotated[int | None, typer.Option(help="Iterations already trained into --start.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out; files, --device and --speed may be others.")
    ] = False,
    log_every: Annotated[int | None, typer.Option(min=1, help="Iterations between lines of the log. Default: 50.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Iterations between checkpoints. Default: 5000.")] = None,
    preview_every: Annotated[
        int | None, typer.Option(min=0, help="Iterations between preview sheets; 0 for none. Default: 2000.")
    ] = None,
) -> None:
    """Train a network for style transfer."""
    asked: dict[str, Any] = {
        "content": content, "style": style, "encoder": encoder, "method": method, "iterations": iterations, "batch": batch,
        "size": size, "short_side": short_side, "lr": lr, "schedule": schedule, "style_weight": style_weight,
        "sliced_weight": sliced_weight, "identity_weight": identity_weight, "reconstruct": reconstruct, "seed": seed,
        "precision": precision, "speed": speed, "vgg": vgg, "start": start, "start_iteration": start_iteration,
        "log_every": log_every, "save_every": save_every, "preview_every": preview_every,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value not in (None, "")}
    try:
        settings = _resumed(out, device, given) if resume else _begun(device, given)
        _run(settings, out, resume)
    except (ValueError, OSError, FloatingPointError) as error:  # OSError: pictures, weights, folders
        tell(console, with_option(error))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print(f"interrupted; go on with: efdm train style --resume -o {out}", soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    finally:
        if dist.is_initialized():
            gc.collect()  # gloo sometimes aborts at exit while something that used it is alive
            dist.destroy_process_group()


def _begun(device: str, given: dict[str, Any]) -> training.Settings:
    """The recipe of the network, with what was given. The settings know what suits the device."""
    if not {"content", "style"} <= set(given):
        raise ValueError("training needs --content and --style, folders or zips of photographs and of paintings")
    target = _join_processes(device)
    return training.Settings.for_encoder(given.pop("encoder", ENCODER), **given, device=str(target))


def _resumed(out: Path, device: str, given: dict[str, Any]) -> training.Settings:
    """The settings the run began with, and what was given: training refuses what would make another run of it."""
    began = read_settings(out)
    target = _join_processes(device or began.device)
    return dataclasses.replace(began, **given, device=str(target))


def _join_processes(name: str) -> torch.device:
    """The device. If torchrun started this process, it is the GPU with its number, and the others are met."""
    together = "RANK" in os.environ
    name = name or default_device()
    if together and name.startswith("cuda"):
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    device = pick_device(name)
    if together and device.type == "cuda":
        torch.cuda.set_device(device)
    if together and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def _run(settings: training.Settings, out: Path, resume: bool) -> None:
    first = processes()[0] == 0
    # on a CPU minutes may lie between two lines of the log, and it takes some to tell the time left
    with bars.progress(console, period=900) as shown:

        def progress(p: training.Progress) -> None:
            losses = (f"{name} {value:.3g}" for name, value in p.losses.items())
            told = (f"{p.per_second:.1f}/s", *losses)
            if first:
                shown.show(p.phase, p.iteration, p.iterations, told=told, pace=p.per_second)

        def reading(at: Progress) -> None:
            if first:
                shown.show(at.label, at.done, at.total)

        training.train(settings, out, resume=resume, progress=progress, reading=reading)
    if first:
        if skipped := json.loads((out / "environment.json").read_text())["skipped"]:
            told = f"left out because they could not be read: {len(skipped)}; {out / 'environment.json'} names them"
            console.print(told, soft_wrap=True, markup=False)
        console.print(f"trained {settings.encoder}: {out / 'network.safetensors'}", soft_wrap=True, markup=False)
