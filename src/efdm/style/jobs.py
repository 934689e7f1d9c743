"""Stylize files: every picture of a plan in every look, a video, or a resumable job over many pictures.

>>> from efdm.style import Stylizer
>>> from efdm.style.jobs import stylize_files
>>> from efdm.style.plan import plan_files
>>> stylize_files(plan_files("photos/", ["paintings/"], "results/"), Stylizer.from_pretrained())  # doctest: +SKIP
Result(done=12, failed=0, skipped=0)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple

import torch

from efdm.data import Source
from efdm.data.bulk import Factory, Job, Output, Process, open_job
from efdm.data.loading import thread_pool
from efdm.data.results import FAILURES, Failed, Saving, report_failure
from efdm.data.video import VideoReader, VideoWriter
from efdm.models import StyleNetwork
from efdm.progress import Progress, Report, ignore
from efdm.style.look import Look
from efdm.style.options import StylizeOptions
from efdm.style.pictures import AUTO_SIDE
from efdm.style.plan import LookSpec, Mix, PathLike, Plan, find_styles, make_looks
from efdm.style.stylizer import Stylizer
from efdm.style.video import stylize_frames
from efdm.training.interrupt import stoppable

MAX_WORKERS = 4  # pictures processed at once, all of which are in memory


class Result(NamedTuple):
    """The number of pictures, or frames of a video, that were written, and of pictures that failed or existed already."""

    done: int
    failed: int = 0
    skipped: int = 0


@stoppable()
def stylize_files(plan: Plan, stylizer: Stylizer, *, progress: Report = ignore, failed: Failed | None = None) -> Result:
    """Stylize the files of a plan and write the results.

    ``failed`` is called with the path and the error of a picture that cannot be read, stylized or written; the others are
    still stylized. Without it, and if the disk is full or memory runs out, the error is raised. SIGTERM is handled
    like Ctrl-C, so no temporary file is left behind.
    """
    options = plan.options
    if plan.is_video:
        if plan.saving.skips(plan.out):
            return Result(0, skipped=1)
        prepared = plan.looks[0].prepare(stylizer, options)
        with report_failure(str(plan.content), None):  # names the video if memory runs out
            frames = stylize_video(plan.content, plan.out, stylizer, options, **prepared, progress=progress)
        return Result(frames)
    pairs = [(look, source) for look in plan.looks for source in plan.contents]
    missing = {(look, source) for look, source in pairs if not plan.saving.skips(plan.target(source, look))}
    if not missing:
        return Result(0, skipped=len(pairs))
    if isinstance(options.size, int):  # contents have at least this size; they are read after the styles are prepared
        stylizer.check_memory("content and the style", options.size, options.size, 2 if options.style_size is None else 1)
    done, attempted, total = 0, 0, len(missing)
    progress(Progress("stylizing", 0, total))
    unreadable = set[Source]()
    for spec in plan.looks:
        sources = [source for source in plan.contents if (spec, source) in missing]
        prepared = {}
        if sources:
            with report_failure(f"the style {spec.name}", failed):
                prepared = spec.prepare(stylizer, options)
        readable = [source for source in sources if prepared and source not in unreadable]  # others are already reported
        attempted += len(sources) - len(readable)
        attempt = partial(_attempt, plan=plan, stylizer=stylizer, look=spec, prepared=prepared, unreadable=unreadable)
        with _workers(stylizer, options, len(readable)) as parallel_map:
            for source, error in zip(readable, parallel_map(attempt, readable), strict=True):
                attempted += 1
                progress(Progress("stylizing", attempted, total))
                with report_failure(str(source), failed):
                    if error is not None:
                        raise error
                    done += 1
    progress(Progress("stylizing", total, total))
    return Result(done, total - done, len(pairs) - total)


def _attempt(
    source: Source, plan: Plan, stylizer: Stylizer, look: LookSpec, prepared: dict[str, Any], unreadable: set[Source]
) -> Exception | None:
    """Stylize a picture and write the result. Return the error if that fails."""
    try:
        picture = source.read()
    except FAILURES as error:
        unreadable.add(source)
        return error
    try:
        result = stylizer.stylize(picture, **prepared, options=plan.options)
        result.save(plan.target(source, look), quality=plan.saving.quality)
    except FAILURES as error:
        return error
    return None


@contextmanager
def _workers(stylizer: Stylizer, options: StylizeOptions, pictures: int) -> Iterator[Any]:
    """Yield a function like `map`, which processes several pictures at once on a CPU.

    Reading and writing then overlap with the network, and threads wait less than if all of them worked on one picture.
    """
    threads = torch.get_num_threads()
    large = options.size == "full" or (isinstance(options.size, int) and options.size > AUTO_SIDE)
    workers = min(threads, pictures, MAX_WORKERS) if stylizer.device.type == "cpu" and not large else 1
    if workers <= 1:
        yield map
        return
    with thread_pool(workers, threads // workers) as pool:
        yield pool.map


def stylize_video(
    source: Path,
    out: Path,
    stylizer: Stylizer,
    options: StylizeOptions,
    *,
    style: Look | None = None,
    regions: Sequence[tuple[Path, Look]] | None = None,
    progress: Report = ignore,
) -> int:
    """Stylize a video file and return the number of frames. An incomplete video is written under another name."""
    sound = source if options.audio == "keep" else None
    with VideoReader(source) as reader, VideoWriter(out, fps=reader.fps, sound_of=sound, aspect=reader.aspect) as writer:
        frames, originals = tee(reader)
        stylized = stylize_frames(stylizer, (frame.rgb for frame in frames), style, regions=regions, options=options)
        for rgb, original in zip(stylized, originals, strict=True):
            writer.write(rgb, original.time, original.duration)
            progress(Progress(source.name, writer.frames, max(reader.frames or 0, writer.frames)))
        if (reader.frames or 0) > writer.frames:  # an estimate
            progress(Progress(source.name, writer.frames, writer.frames))
    return writer.frames


def stylize_process(
    network: StyleNetwork, looks: Sequence[LookSpec], options: StylizeOptions, precision: str, device: str
) -> Process:
    """Return the process of a job that stylizes a picture in every look. The styles are prepared once."""
    stylizer = Stylizer(network, device, precision=precision)
    prepared = {f"__{look.name}": look.prepare(stylizer, options) for look in looks}
    return lambda picture: {
        ending: stylizer.stylize(picture, **arguments, options=options) for ending, arguments in prepared.items()
    }


def stylize_job(
    content: PathLike,
    styles: Sequence[PathLike],
    out: PathLike,
    network: StyleNetwork,
    *,
    weights: Sequence[float] = (),
    mix: Mix = "none",
    options: StylizeOptions | None = None,
    precision: str = "fp32",
    output: Output | None = None,
    saving: Saving | None = None,
) -> tuple[Job, Factory]:
    """Return a job for `run_job` that stylizes a folder, a zip or WebDataset shards, as `plan_files` and `stylize_files` do.

    >>> from efdm.data.bulk import run_job
    >>> from efdm.models.weights import pretrained
    >>> from efdm.style.jobs import stylize_job
    >>> run_job(*stylize_job("photos/", ["starry"], "out/", pretrained("small")), engine="ray")  # doctest: +SKIP
    """
    options = options or StylizeOptions()
    sources, notes = find_styles(styles)
    looks = make_looks(sources, weights, mix, (), ())
    weights_bytes = b"".join(values.cpu().numpy().tobytes() for values in network.state_dict().values())
    settings = {
        "options": asdict(options), "precision": precision, "network": f"{network.name} {digest(weights_bytes)}",
        "looks": [[look.name, look.weights, [digest(style) for style in look.styles]] for look in looks],
    }  # fmt: skip
    job = open_job(Path(content), Path(out), settings, output, saving)
    return replace(job, notes=(*notes, *job.notes)), partial(stylize_process, network, looks, options, precision)


def digest(source: bytes | Source) -> str:
    """Return a hash of bytes or of a file."""
    if isinstance(source, Source):
        with source.open() as file:
            source = file.read()
    return hashlib.sha256(source).hexdigest()[:16]
