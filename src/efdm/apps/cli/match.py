"""The command ``efdm match``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from efdm.apps.cli import files
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, Paths, choice, given_fields, option, resolve_device
from efdm.apps.cli.printing import print_warning
from efdm.apps.cli.progress import show_progress
from efdm.data.folders import is_video
from efdm.data.results import Saving
from efdm.style.color import SPACES
from efdm.style.levels import TIES
from efdm.style.match_files import match_files, match_job
from efdm.style.options import Audio, MatchOptions, Method


@report_errors(files.INTERRUPTED)
def match(
    context: typer.Context,
    content: Annotated[list[Path], files.content("Also arrays (.npy, .tif).")],
    out: files.Out,
    reference: Annotated[list[str], option("A picture, folder, zip, array or painted style. Repeat to pool several.")],
    space: Annotated[str, choice(SPACES, "Colour space.")] = MatchOptions.space,
    method: Annotated[str, choice(get_args(Method), "Match the channels one by one or jointly.")] = MatchOptions.method,
    strength: Annotated[float, option("From the content (0) to the match (1).", min=0, max=1)] = MatchOptions.strength,
    ties: Annotated[str, choice(TIES, "Order of equal values.")] = MatchOptions.ties,
    tolerance: Annotated[
        float, option("Match values within this many standard deviations together; 0: exact.", min=0)
    ] = MatchOptions.tolerance,
    mask: Annotated[Path | None, option("Change only where this picture is white.")] = None,
    reference_mask: Annotated[Paths, option("Use only the white part of a reference. Repeat it once per reference.")] = None,
    nodata: Annotated[float | None, option("Value of pixels without data, which are not changed.")] = None,
    seed: Annotated[int, option("Random seed of the dither and of a joint match.")] = MatchOptions.seed,
    audio: Annotated[str, choice(get_args(Audio), "Sound of a video.")] = MatchOptions.audio,
    format: files.Format = "",
    quality: files.Quality = 95,
    skip_existing: files.SkipExisting = False,
    device: Device = None,
    shard: files.Shard = "",
    engine: files.Engine = "plain",
    workers: files.Workers = None,
    output: files.Output = "",
) -> None:
    """Match the colours of pictures or a video with a reference, exactly in every channel.

    A video is matched as a whole, so it does not flicker. Pictures of a folder are matched one by one and written to OUT.

    With --shard, --engine ray or --output, or with shards as contents, the command is a job: run it again to continue it.
    """
    with files.piped(content, out, format) as (contents, target):
        parsed = {"reference_masks": tuple(reference_mask or ()), "device": resolve_device(device)}
        options = MatchOptions(**given_fields(context, MatchOptions) | parsed)
        saving = Saving(format, quality, "skip" if skip_existing else "replace")
        jobs = files.JobOptions(shard, engine, workers, output)
        if jobs.is_job(contents, out):
            job = match_job(
                contents[0], reference, target, options, output=output or None, saving=saving  # type: ignore[arg-type]
            )  # fmt: skip
            return jobs.run(*job, str(options.device))
        with show_progress() as progress:
            result = match_files(
                contents, reference, target, options,
                saving=saving, progress=progress, failed=files.print_failure, note=print_warning,
            )  # fmt: skip
    files.finish(result, out, "frame" if is_video(content, out) else "picture")
