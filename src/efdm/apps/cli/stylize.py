"""The command ``efdm stylize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from efdm.apps.cli import files
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, Paths, choice, complete, given_fields, option, resolve_device
from efdm.apps.cli.printing import print_warning
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import Model, Vgg, Weights
from efdm.data.embedded import STYLES
from efdm.data.results import Saving
from efdm.errors import SettingError
from efdm.models.weights import pretrained
from efdm.ops import MATCHERS
from efdm.ops.choices import CHOICES, check_choice
from efdm.style import Stylizer
from efdm.style.color import COLORS
from efdm.style.jobs import stylize_files, stylize_job
from efdm.style.options import MAX_STROKE, Audio, StylizeOptions, Temporal
from efdm.style.photoreal import PHOTOREAL
from efdm.style.plan import Mix, plan_files
from efdm.training import PRECISIONS
from efdm.training.device import fast_precision

SIZES = "[PIXELS|full|auto]"
STRENGTHS = "[FLOAT 0<=x<=1|auto]"


@report_errors(files.INTERRUPTED)
def stylize(
    context: typer.Context,
    content: Annotated[list[Path], files.content()],
    out: files.Out,
    style: Annotated[
        list[str],
        option(
            f"A picture, a folder, a zip or a painted style ({', '.join(STYLES)}). Repeat for several.",
            autocompletion=complete(STYLES),
        ),
    ],
    weight: Annotated[list[float] | None, option("Mix styles by weight into one look. Repeat it once per style.")] = None,
    mix: Annotated[str, choice(get_args(Mix), "equal: mix all styles equally; none: one result per style.")] = "none",
    strength: Annotated[
        str, option("From the content (0) to the style (1); auto is 1, or less for nearly empty styles.", metavar=STRENGTHS)
    ] = "auto",
    stroke: Annotated[float, option("Factor by which strokes are enlarged.", min=1, max=MAX_STROKE)] = StylizeOptions.stroke,
    method: Annotated[str, choice(MATCHERS, "Matching method.")] = StylizeOptions.method,
    preserve_color: Annotated[
        str, choice(COLORS, "content: recolour the style first; luminance: change only the brightness.")
    ] = StylizeOptions.preserve_color,
    photoreal: Annotated[
        str, choice(PHOTOREAL, "Keep the edges of the content, for photographs as styles.")
    ] = StylizeOptions.photoreal,
    content_mask: Annotated[Paths, option("Stylize only where this picture is white. Repeat it once per region.")] = None,
    style_mask: Annotated[Paths, option("Use only the white part of the style. Repeat it once per style or region.")] = None,
    size: Annotated[
        str, option("Short side for the network; auto is full up to 1024. The output size is unchanged.", metavar=SIZES)
    ] = "auto",
    style_size: Annotated[str, option("Short side of the styles. Default: --size.", metavar=SIZES)] = "",
    model: Model = "",
    weights: Weights = None,
    vgg: Vgg = None,
    device: Device = None,
    precision: Annotated[
        str, choice(("auto", *PRECISIONS), "bf16 is faster on GPUs and recent CPUs; auto uses it on those CPUs.")
    ] = "auto",
    ties: Annotated[str | None, choice(CHOICES["ties"], "Order of equal values with efdm.")] = None,
    tolerance: Annotated[
        float | None,
        option("Match features within this many standard deviations together; 0: exact. Default: the model's.", min=0),
    ] = None,
    seed: Annotated[int, option("Random seed for --ties random.")] = StylizeOptions.seed,
    temporal: Annotated[str, choice(get_args(Temporal), "Flicker reduction in videos.")] = StylizeOptions.temporal,
    audio: Annotated[str, choice(get_args(Audio), "Sound of a video.")] = StylizeOptions.audio,
    format: files.Format = "",
    quality: files.Quality = 95,
    skip_existing: files.SkipExisting = False,
    shard: files.Shard = "",
    engine: files.Engine = "plain",
    workers: files.Workers = None,
    output: files.Output = "",
) -> None:
    """Stylize pictures or a video.

    Every content is combined with every style. Several results are written to the folder OUT as CONTENT__STYLE.png.
    Pictures in OUT are never used as contents.

    With --weight or --mix equal, all styles are mixed into one look.

    With --content-mask, each region gets its own style, or with --style-mask its own part of one style. The rest of the
    content is unchanged.

    With --shard, --engine ray or --output, or with shards as contents, the command is a job: run it again to continue it.
    """
    with files.piped(content, out, format) as (contents, target):
        parsed = {"strength": _strength(strength), "size": _size(size), "style_size": _size(style_size)}
        options = StylizeOptions(**given_fields(context, StylizeOptions) | parsed)
        saving = Saving(format, quality, "skip" if skip_existing else "replace")
        jobs, on = files.JobOptions(shard, engine, workers, output), resolve_device(device)
        check_choice("precision", precision, ("auto", *PRECISIONS))
        precision = fast_precision(on) if precision == "auto" else precision
        if jobs.is_job(contents, out):
            if content_mask or style_mask:
                raise SettingError("masks apply to single pictures, not to a job; omit them", ("content_mask", "style_mask"))
            job = stylize_job(
                contents[0], style, target, pretrained(model or None, weights=weights, vgg=vgg), weights=weight or (),
                mix=mix, options=options, precision=precision, output=output or None, saving=saving,  # type: ignore[arg-type]
            )  # fmt: skip
            return jobs.run(*job, str(on))
        plan = plan_files(
            contents, style, target, weights=weight or (), mix=mix,  # type: ignore[arg-type]
            content_masks=content_mask or (), style_masks=style_mask or (), options=options, saving=saving,
        )  # fmt: skip
        for note in plan.notes:
            print_warning(note)
        stylizer = Stylizer.from_pretrained(model or None, on, weights, vgg, precision=precision)
        with show_progress() as progress:
            result = stylize_files(plan, stylizer, progress=progress, failed=files.print_failure)
    files.finish(result, out, "frame" if plan.is_video else "picture")


def _strength(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _size(text: str) -> int | str | None:
    return int(text) if text.isdecimal() else text or None
