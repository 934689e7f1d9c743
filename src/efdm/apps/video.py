"""A video in the look of a style, with a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from efdm.apps.wishes import SOUND
from efdm.data.video import VideoReader, VideoWriter
from efdm.ops.choices import check_choice
from efdm.style.look import Look
from efdm.style.stylizer import Stylizer
from efdm.style.video import stylize_frames

INTERRUPTED = 130  # what a shell returns for Ctrl-C


def run(
    source: Path,
    out: Path,
    stylizer: Stylizer,
    look: Look,
    *,
    strength: float,
    method: str,
    temporal: str,
    size: int | None,
    console: Console,
    sound: str = "keep",
) -> None:
    """Stylize a video file. What is wrong with a file is raised as a `VideoError`; Ctrl-C leaves nothing behind."""
    check_choice("sound", sound, SOUND)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    writer: VideoWriter | None = None
    try:
        with (
            VideoReader(source) as reader,
            VideoWriter(out, fps=reader.fps, sound_of=source if sound == "keep" else None, aspect=reader.aspect) as writer,
            Progress(*columns, console=console) as bar,
        ):
            task = bar.add_task(source.name, total=reader.frames, told="")
            times: list[Fraction] = []

            def contents() -> Iterator[Tensor]:
                for frame in reader:
                    times.append(frame.time)
                    yield frame.rgb

            made = stylize_frames(stylizer, contents(), look, strength=strength, method=method, temporal=temporal, size=size)
            for rgb in made:
                writer.write(rgb, times.pop(0))
                speed = bar.tasks[task].finished_speed or bar.tasks[task].speed
                bar.update(task, advance=1, told="" if speed is None else f"{speed:.1f} frames/s")
            bar.update(task, total=writer.frames)  # the file's own count is sometimes a guess
    except KeyboardInterrupt:
        done = 0 if writer is None else writer.frames
        console.print(f"interrupted after {done} frames; {out} was not written", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    console.print(f"{out}: {writer.frames} frames", soft_wrap=True)
