"""``efdm evaluate``: measure models on pairs of pictures, with a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from efdm.apps.devices import pick_device
from efdm.apps.networks import with_option
from efdm.apps.tell import tell
from efdm.data import PictureError, find_pictures
from efdm.models import NETWORKS
from efdm.models.weights import MissingWeights, checksum, find, load_encoder
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.progress import Progress as Report
from efdm.style import evaluate as evaluation
from efdm.style import report
from efdm.style.candidates import Candidate, load_pretrained, load_trained, network_candidate, optimiser_candidate, unchanged
from efdm.style.measures import Metrics, load_metrics
from efdm.style.optimise import OPTIMISERS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure models on pictures of your own.")
console = Console()

# what gives the file of a weight that is not found; the decoder of vgg19 is looked up only
ENCODED = [name for name, row in NETWORKS.items() if row.encoder]
OPTIONS = {"vgg16": "--vgg FILE", "vgg19-normalised": "--encoder vgg19=FILE"}


@app.callback()
def _root() -> None:
    """Measure models on pictures of your own."""


@app.command()
def style(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: records, outputs, table, plot, sheets.")],
    content: Annotated[str, typer.Option(help="Photographs: a folder or a zip.")] = "",
    style: Annotated[str, typer.Option(help="Paintings: a folder or a zip.")] = "",
    model: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(NETWORKS)}; may be repeated.")] = None,
    network: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE, a network that `efdm train` wrote; may be repeated.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(MATCHERS)}; may be repeated. Default: what each was trained with."),
    ] = None,
    strength: Annotated[str, typer.Option(help="From 0 to 1, or several with commas: 0,0.25,0.5,0.75,1.")] = "1",
    optimiser: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(OPTIMISERS)}; may be repeated.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Of the optimisers; default: each its own.", min=1)] = None,
    pairs: Annotated[int, typer.Option(help="At most so many pairs.", min=1)] = 60,
    pairing: Annotated[str, typer.Option(help="order: content i with style i; grid: every one with every one.")] = "order",
    size: Annotated[int, typer.Option(help="Short side at which pictures are made; 0: their own.", min=0)] = 512,
    measured_at: Annotated[
        int, typer.Option(help="Short side at which images are measured.", min=32)
    ] = evaluation.MEASURED_AT,
    content_metric: Annotated[
        str, typer.Option(help="Content metric: lpips (needs the package lpips) or feature_distance.")
    ] = "lpips",
    vgg: Annotated[
        str,
        typer.Option(
            help="File of VGG-16, ImageNet, for measuring, optimisers and models of vgg16; default: looked up, see "
            "`efdm weights`."
        ),
    ] = "",
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            help=f"NAME=FILE, the encoder of models: one of {', '.join(ENCODED)}. Default: --vgg for vgg16, or looked up."
        ),
    ] = None,
    alexnet: Annotated[str, typer.Option(help="File of AlexNet, for a second LPIPS.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; default: the GPU if there is one.")] = "",
    table: Annotated[bool, typer.Option("--table", help="Measure nothing: only render what the run has.")] = False,
) -> None:
    """Stylise pairs of pictures and measure what is kept of the content and what is taken of the style.

    A run that was interrupted goes on when the same command is given again; pairs that are finished are not repeated.
    """
    failed = 0
    try:
        if not table:
            target = pick_device(device)
            if not content or not style:
                raise ValueError("--content and --style are needed: a folder or a zip of pictures each")
            chosen = evaluation.make_pairs(find_pictures(content), find_pictures(style), pairing=pairing, most=pairs)  # type: ignore[arg-type]
            strengths = _strengths(strength)
            metrics = load_metrics(vgg=vgg or None, alexnet=alexnet or None, content=content_metric, device=target)
            candidates = _candidates(
                model or ([] if network or optimiser else ["small"]), network or [], method or [], strengths,
                optimiser or [], iterations, vgg or None, _encoders(encoder or []), target,
            )  # fmt: skip
            failed = _measure(chosen, candidates, metrics, out, size, measured_at, target)
        written = report.render(out)
    except (ValueError, PictureError, MissingWeights, FloatingPointError) as error:
        tell(console, with_option(error, OPTIONS))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print(f"interrupted; the same command goes on, --table -o {out} shows what there is", soft_wrap=True)
        raise typer.Exit(130) from None
    console.print((out / "table.md").read_text(), markup=False, highlight=False, soft_wrap=True)
    console.print("written: " + ", ".join(str(p) for p in written), markup=False, soft_wrap=True)
    if out / "tradeoff.png" not in written:
        console.print("the plot needs matplotlib: pip install matplotlib")
    if failed:
        raise typer.Exit(1)


def _strengths(given: str) -> list[float]:
    try:
        found = [float(part) for part in given.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= s <= 1 for s in found):
        raise ValueError(f"--strength {given} is not a list of numbers from 0 to 1; write 1 or 0,0.5,1")
    return list(dict.fromkeys(found))


def _named_file(option: str, given: str, example: str) -> tuple[str, str]:
    name, _, file = given.partition("=")
    if not name or not file:
        raise ValueError(f"{option} {given} should be NAME=FILE, such as {example}")
    return name, file


def _encoders(given: list[str]) -> dict[str, str]:
    found = dict(_named_file("--encoder", g, "vgg19=vgg_normalised.pth") for g in given)
    for name in found:
        check_choice("encoder", name, ENCODED)
    return found


def _candidates(
    models: list[str],
    networks: list[str],
    methods: list[str],
    strengths: list[float],
    optimisers: list[str],
    iterations: int | None,
    vgg: str | None,
    encoders: dict[str, str],
    device: torch.device,
) -> list[Candidate]:
    files = {**({"vgg16": vgg} if vgg else {}), **encoders}
    trained = [load_pretrained(name, encoders=files, device=device) for name in dict.fromkeys(models)]
    for given in networks:
        name, file = _named_file("--network", given, "mine=runs/mine/network.safetensors")
        trained.append(load_trained(name, file, encoders=files, device=device))
    if idle := encoders.keys() - {t.stylizer.network.name for t in trained}:
        raise ValueError(f"--encoder {', '.join(sorted(idle))}: no model of this command has it; leave it out")
    candidates = [unchanged()]
    for t in trained:
        for m in dict.fromkeys(methods or [t.method]):
            candidates += [network_candidate(t.name, t.stylizer, method=m, strength=s, weights=t.weights) for s in strengths]
    if optimisers:
        # as it was trained, and as the metrics has it
        encoder = load_encoder("vgg16", "relu5_1", path=vgg, padding="zeros", pooling="floor").requires_grad_(False)
        encoder = encoder.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        weights = checksum(find("vgg16", vgg))[:12]
        chosen = dict.fromkeys(optimisers)
        candidates += [optimiser_candidate(o, encoder, iterations=iterations, weights=weights) for o in chosen]
    return candidates


def _measure(
    pairs: list[evaluation.Pair],
    candidates: list[Candidate],
    metrics: Metrics,
    out: Path,
    size: int,
    measured_at: int,
    device: torch.device,
) -> int:
    """Measure, and tell how many pairs could not be read."""
    failed: list[PictureError] = []
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeRemainingColumn(),
    )  # fmt: skip
    made_at = size or None  # 0 is easier to type than nothing
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("pictures", total=len(pairs) * len(candidates), count="")

        def show(p: Report) -> None:
            count = f"{int(p.done)}/{p.total}"
            bar.update(task, completed=p.done, description=p.label, count=count)

        def leave_out(error: PictureError) -> None:
            failed.append(error)
            tell(console, error)

        evaluation.evaluate(
            pairs, candidates, metrics, out, size=made_at, measured_at=measured_at, device=device, progress=show,
            unreadable=leave_out,
        )  # fmt: skip
    return len(failed)
