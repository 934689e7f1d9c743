"""The command ``efdm match``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli import bulk
from efdm.apps.cli.errors import report_errors, sentence
from efdm.apps.cli.options import Device, resolve_device
from efdm.apps.cli.printing import print_error, print_text
from efdm.apps.cli.progress import show_progress
from efdm.style.bulk import match_job
from efdm.style.levels import TIES
from efdm.style.match_files import MatchOptions, match_files
from efdm.style.plan import VIDEOS
from efdm.style.spaces import SPACES
from efdm.text import plural

app = typer.Typer(add_completion=False)


@app.command()
def match(
    content: Annotated[
        Path, typer.Argument(help="A picture, a folder, a zip, a video, an array (.npy, .tif), or WebDataset shards (.tar).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file for one result, a folder for several.")],
    reference: Annotated[
        list[str],
        typer.Option(help="A picture, a folder, a zip, an array or the name of a painted style. Repeat to pool several."),
    ],
    space: Annotated[str, typer.Option(help=f"Colour space: {', '.join(SPACES)}.")] = "rgb",
    method: Annotated[
        str, typer.Option(help="channels: every channel exactly; joint: also the combinations of channels.")
    ] = "channels",
    strength: Annotated[float, typer.Option(help="From 0 (the content) to 1 (the match).")] = 1.0,
    ties: Annotated[str, typer.Option(help=f"Order of equal values: {', '.join(TIES)}.")] = "smooth",
    mask: Annotated[Path | None, typer.Option(help="Change only where this picture is white.")] = None,
    reference_mask: Annotated[
        list[Path] | None, typer.Option(help="Use only the white part of a reference. Repeat it once per reference.")
    ] = None,
    nodata: Annotated[float | None, typer.Option(help="Value of pixels without data, which stay as they are.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the dither and of a joint match.")] = 0,
    audio: Annotated[str, typer.Option(help="Sound of a video: keep or drop.")] = "keep",
    device: Device = "",
    shard: bulk.Shard = "",
    engine: bulk.Engine = "plain",
    workers: bulk.Workers = 0,
    output: bulk.Output = "",
) -> None:
    """Give pictures or a video exactly the colours of a reference.

    A video is matched as a whole, so it does not flicker. Pictures of a folder are matched one by one and written to OUT.

    With --shard, --engine ray, --output or shards, the command is a job: run it again to continue it.
    """
    with report_errors("interrupted; the results written so far are complete"):
        options = MatchOptions(
            space=space, method=method, strength=strength, ties=ties, mask=mask,  # type: ignore[arg-type]
            reference_masks=tuple(reference_mask or ()), nodata=nodata, seed=seed, audio=audio,  # type: ignore[arg-type]
            device=resolve_device(device),
        )  # fmt: skip
        jobs = bulk.JobOptions(shard, engine, workers, output)
        if jobs.is_job(content):
            job = match_job(content, reference, out, options, output=output or None)  # type: ignore[arg-type]
            return bulk.run(*job, jobs, str(options.device))
        with show_progress() as progress:
            result = match_files(
                content, reference, out, options, progress=progress, failed=lambda error: print_error(sentence(error))
            )
    if result.done:
        what = plural(result.done, "frame" if content.suffix.lower() in VIDEOS else "picture")
        print_text(f"{what} in {out}" if result.done + result.failed > 1 else out)
    if result.failed:
        print_error(f"{result.failed} of {result.done + result.failed} pictures failed")
        raise typer.Exit(1 if result.done else 2)
