"""The command ``efdm stylize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli import bulk
from efdm.apps.cli.errors import report_errors, sentence
from efdm.apps.cli.options import Device, resolve_device
from efdm.apps.cli.printing import print_error, print_text, print_warning
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import WEIGHT_OPTIONS, Model, Vgg, Weights
from efdm.errors import SettingError
from efdm.models.weights import pretrained
from efdm.ops import MATCHERS
from efdm.ops.choices import CHOICES
from efdm.style import Stylizer
from efdm.style.bulk import stylize_job
from efdm.style.color import COLORS
from efdm.style.jobs import stylize_files
from efdm.style.photoreal import PHOTOREAL
from efdm.style.plan import Options, plan_files
from efdm.style.video import TEMPORAL
from efdm.text import plural
from efdm.training import PRECISIONS

app = typer.Typer(add_completion=False)
Paths = list[Path] | None


@app.command()
def stylize(
    content: Annotated[Path, typer.Argument(help="A picture, a folder, a zip, a video, or WebDataset shards (.tar).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file for one result, a folder for several.")],
    style: Annotated[
        list[str], typer.Option(help="A picture, a folder, a zip or the name of a painted style. Can be repeated.")
    ],
    weight: Annotated[
        list[float] | None, typer.Option(help="Mix all styles into one look. Repeat it once per style.")
    ] = None,
    mix: Annotated[str, typer.Option(help="equal: mix all styles with equal weights; none: one result per style.")] = "none",
    strength: Annotated[float, typer.Option(help="From 0 (the content) to 1 (the style).")] = 1.0,
    method: Annotated[str, typer.Option(help=f"Matching method: {', '.join(MATCHERS)}.")] = "efdm",
    preserve_color: Annotated[str, typer.Option(help=f"Keep the colours of the content: {', '.join(COLORS)}.")] = "none",
    photoreal: Annotated[str, typer.Option(help=f"Keep the edges of the content: {', '.join(PHOTOREAL)}.")] = "none",
    content_mask: Annotated[
        Paths, typer.Option(help="Stylize only where this picture is white. Repeat it for several regions.")
    ] = None,
    style_mask: Annotated[
        Paths, typer.Option(help="Use only the white part of the style. Repeat it once per style or region.")
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            help="Short side for the network: pixels, full, or auto (full up to 1024). The output size is unchanged."
        ),
    ] = "auto",
    style_size: Annotated[
        str, typer.Option(help="Short side of the styles; a larger size gives larger strokes. Defaults to --size.")
    ] = "",
    model: Model = "",
    weights: Weights = None,
    vgg: Vgg = None,
    device: Device = "",
    precision: Annotated[str, typer.Option(help=f"{' or '.join(PRECISIONS)}; bf16 is faster on a GPU.")] = "fp32",
    ties: Annotated[str | None, typer.Option(help=f"Order of equal values with efdm: {', '.join(CHOICES['ties'])}.")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Standard deviations within which content shares a style value; 0: exact. Default: the model's."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for --ties random.")] = 0,
    temporal: Annotated[str, typer.Option(help=f"Flicker reduction in videos: {', '.join(TEMPORAL)}.")] = "smooth",
    audio: Annotated[str, typer.Option(help="Sound of a video: keep or drop.")] = "keep",
    shard: bulk.Shard = "",
    engine: bulk.Engine = "plain",
    workers: bulk.Workers = 0,
    output: bulk.Output = "",
) -> None:
    """Stylize pictures or a video.

    Every content is combined with every style. Several results are written to the folder OUT as CONTENT__STYLE.png.

    With --weight or --mix equal, all styles are mixed into one look.

    With --content-mask, each region gets its own style, or with --style-mask its own part of one style. The rest of the
    content is unchanged.

    With --shard, --engine ray, --output or shards, the command is a job: run it again to continue it.
    """
    interrupted = "interrupted; the results written so far are complete"
    with report_errors(interrupted, weight_options=WEIGHT_OPTIONS):
        options = Options(
            strength=strength, method=method, preserve_color=preserve_color, photoreal=photoreal, ties=ties,
            tolerance=tolerance, seed=seed, size=_size(size), style_size=_size(style_size), temporal=temporal,
            audio=audio,  # type: ignore[arg-type]
        )  # fmt: skip
        jobs = bulk.JobOptions(shard, engine, workers, output)
        if jobs.is_job(content):
            if content_mask or style_mask:
                raise SettingError("masks are for single pictures, not for a job", ("content_mask", "style_mask"))
            target = resolve_device(device)
            job = stylize_job(
                content, style, out, pretrained(model or None, weights=weights, vgg=vgg), weights=weight or (),
                mix=mix, options=options, precision=precision, output=output or None,  # type: ignore[arg-type]
            )  # fmt: skip
            return bulk.run(*job, jobs, str(target))
        plan = plan_files(
            content, style, out, weights=weight or (), mix=mix,  # type: ignore[arg-type]
            content_masks=content_mask or (), style_masks=style_mask or (), options=options,
        )  # fmt: skip
        for note in plan.notes:
            print_warning(note)
        stylizer = Stylizer.from_pretrained(model or None, resolve_device(device), weights, vgg, precision=precision)
        with show_progress() as progress:
            result = stylize_files(plan, stylizer, progress=progress, failed=lambda error: print_error(sentence(error)))
    if result.done:
        what = plural(result.done, "frame" if plan.is_video else "picture")
        print_text(f"{what} in {out}" if out.is_dir() or plan.is_video else out)
    if result.failed:
        if result.failed + result.done > 1:
            print_error(f"{result.failed} of {result.done + result.failed} pictures failed")
        raise typer.Exit(1 if result.done else 2)


def _size(text: str) -> int | str | None:
    return int(text) if text.isdecimal() else text or None
