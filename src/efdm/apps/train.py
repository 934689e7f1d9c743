"""``efdm train``: training with a progress bar."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from efdm.models import NETWORKS
from efdm.ops import MATCHERS
from efdm.style import train as training
from efdm.style.step import processes

app = typer.Typer(no_args_is_help=True, help="Train a model of your own.")
console = Console()


@app.callback()
def _root() -> None:
    """Train a model of your own."""


@app.command()
def style(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: network, records, previews.")],
    content: Annotated[str, typer.Option(help="Photographs: a folder or a zip.")] = "",
    style: Annotated[str, typer.Option(help="Paintings: a folder or a zip.")] = "",
    encoder: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")] = "small",
    method: Annotated[str, typer.Option(help=f"One of {', '.join(MATCHERS)}.")] = "efdm",
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Default: 160000 for a VGG's decoder, 40000 for small.")
    ] = None,
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
    seed: Annotated[int, typer.Option(help="Of initial weights and of every draw.")] = 0,
    precision: Annotated[str | None, typer.Option(help="bf16 or fp32; default: bf16 on a GPU.")] = None,
    speed: Annotated[str | None, typer.Option(help="plain, compile, graph, compile+graph; default: graph on a GPU.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; default: the GPU if there is one.")] = "",
    vgg: Annotated[str, typer.Option(help="File of the VGG; default: looked up, see `efdm weights`.")] = "",
    start: Annotated[str, typer.Option(help="A network.safetensors to begin with.")] = "",
    begun: Annotated[int, typer.Option(help="Iterations that --start has behind it; the run goes on from there.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, with its own settings.")] = False,
    log_every: Annotated[int, typer.Option(min=1, help="Iterations between lines of the log.")] = 50,
    save_every: Annotated[int, typer.Option(min=1, help="Iterations between checkpoints.")] = 5000,
    preview_every: Annotated[int, typer.Option(min=0, help="Iterations between preview sheets; 0 for none.")] = 2000,
) -> None:
    """Train a network for style transfer."""
    target = _join_processes(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_gpu = target.startswith("cuda")
    chosen: dict[str, Any] = {
        "iterations": iterations, "batch": batch, "size": size, "short_side": short_side, "lr": lr, "schedule": schedule,
        "style_weight": style_weight, "sliced_weight": sliced_weight, "identity_weight": identity_weight,
        "reconstruct": reconstruct, "precision": precision or ("bf16" if on_gpu else "fp32"),
        "speed": speed or ("graph" if on_gpu else "plain"),
    }  # fmt: skip
    try:
        _check_device(target)
        if encoder not in training.RECIPES:
            raise ValueError(f"--encoder {encoder} is not one of {', '.join(training.RECIPES)}")
        if resume:
            settings = _resumed(
                out, {"content": content, "style": style, "vgg": vgg, "device": target, "speed": chosen["speed"]}
            )
        elif not content or not style:
            raise ValueError("training needs --content and --style, folders or zips of photographs and of paintings")
        else:
            settings = training.Settings(
                content=content, style=style, encoder=encoder, method=method, seed=seed, device=target, vgg=vgg, start=start,
                begun=begun,
                **{**training.RECIPES[encoder], **{k: v for k, v in chosen.items() if v is not None}},
            )  # fmt: skip
        _run(settings, out, resume, log_every, save_every, preview_every)
    except (ValueError, OSError, FloatingPointError) as error:  # OSError: pictures, weights, folders
        console.print(Text(str(error), style="red"), soft_wrap=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print(f"interrupted; go on with: efdm train style --resume -o {out}", soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    finally:
        if dist.is_initialized():
            gc.collect()  # gloo sometimes aborts at exit while something that used it is alive
            dist.destroy_process_group()


def _join_processes(device: str) -> str:
    """Meet the other processes, if torchrun started this one; the device, with this process's number."""
    if "RANK" not in os.environ:
        return device
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return device


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"torch cannot use --device {name} here; try --device cpu") from error


def _resumed(out: Path, moved: Mapping[str, str]) -> training.Settings:
    """The settings the run began with; where it runs and where its files are may have changed."""
    path = out / "settings.json"
    if not path.exists():
        raise ValueError(f"{out} has no run to resume; leave --resume out to begin one")
    return training.Settings(**{**json.loads(path.read_text()), **{k: v for k, v in moved.items() if v}})


def _run(settings: training.Settings, out: Path, resume: bool, log_every: int, save_every: int, preview_every: int) -> None:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
    )  # fmt: skip
    first = processes()[0] == 0
    with Progress(*columns, console=console, disable=not first) as bar:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int, told: str) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, told="")
            bar.update(tasks[what], completed=done, total=total, told=told)

        def progress(p: training.Progress) -> None:
            told = "  ".join(f"{k} {v:.3g}" for k, v in p.losses.items())
            show(p.phase, p.iteration, p.iterations, f"{p.per_second:.1f}/s  {told}")

        training.train(
            settings, out, resume=resume, log_every=log_every, save_every=save_every, preview_every=preview_every,
            progress=progress, reading=lambda done, total: show("reading pictures", done, total, ""),
        )  # fmt: skip
    if first:
        if skipped := json.loads((out / "environment.json").read_text())["skipped"]:
            told = f"{len(skipped)} pictures could not be read and were left out; {out / 'environment.json'} names them"
            console.print(told, soft_wrap=True, markup=False)
        console.print(f"trained {settings.encoder}: {out / 'network.safetensors'}", soft_wrap=True, markup=False)
