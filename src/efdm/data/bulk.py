"""Process millions of pictures in units that can be resumed, divided among machines, and run by several workers.

A job is a list of units: some files of a folder or zip, or one WebDataset shard. A finished unit leaves a mark, a file with
its counts and failures, in ``out/.done``. Marked units are skipped, so a stopped job can be resumed, and machines that share
``out`` can divide the units among them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from efdm.data.folders import Source, scan_pictures
from efdm.data.images import DiskFullError, Picture, PictureError, StrPath, encode_picture, write_bytes
from efdm.data.picture_formats import READABLE
from efdm.data.results import FAILURES, Saving
from efdm.data.shards import Sample, find_shards, read_shard, write_shard
from efdm.errors import RunFolderError, SettingError, is_out_of_memory, requires
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.text import make_unique

T = TypeVar("T")
Output = Literal["files", "shards"]
Process = Callable[[Picture], Mapping[str, Picture]]  # picture -> results by the ending of their names
Factory = Callable[[str], Process]  # device -> process; called once in every worker
# name in messages, key of the results, reader, and the members beside the picture in its sample
Item = tuple[str, str, Callable[[], Picture], Mapping[str, bytes]]

MAX_UNIT = 1000  # files in a unit
UNITS = 256  # number of units, unless they would be larger than MAX_UNIT
MARKS = ".done"
CORES = 2  # per worker of Ray without a GPU
ATTEMPTS = 3  # number of times that a worker may die at a unit before the unit counts as failed


@dataclass(frozen=True)
class Unit:
    """A part of a job: some files, or one shard. ``name`` names its mark and the shard that it writes."""

    name: str
    sources: tuple[Source, ...] = ()
    shard: Path | None = None


class Done(NamedTuple):
    """The number of results that a unit has written, and the reason of each failure by path."""

    unit: str
    done: int
    failed: dict[str, str]


@dataclass(frozen=True)
class Job:
    """Units, the folder of their results, and notes about skipped files."""

    units: tuple[Unit, ...] = field(repr=False)
    out: Path
    output: Output
    saving: Saving = field(default_factory=Saving)
    notes: tuple[str, ...] = field(default=(), repr=False)

    def mark(self, unit: Unit) -> Path:
        return self.out / MARKS / f"{unit.name}.json"

    def finished(self, unit: Unit) -> Done | None:
        """Return the counts of a finished unit, or None."""
        try:
            return Done(unit.name, **json.loads(self.mark(unit).read_text()))
        except FileNotFoundError:
            return None


def find_units(content: StrPath, out: StrPath | None = None) -> tuple[tuple[Unit, ...], tuple[str, ...]]:
    """Return the units of shards, a folder or a zip, and a note about each kind of file that is skipped.

    The units depend only on the files, not on machines or workers. The folder ``out`` is skipped, so a job may write to a
    folder inside ``content``.
    """
    if shards := find_shards(content):
        return tuple(Unit(name, shard=p) for name, p in zip(make_unique(p.stem for p in shards), shards, strict=True)), ()
    sources, notes = scan_pictures(content, without=out)
    size = min(MAX_UNIT, -(-len(sources) // UNITS))
    parts = [tuple(sources[first : first + size]) for first in range(0, len(sources), size)]
    return tuple(Unit(f"{number:06}", part) for number, part in enumerate(parts)), tuple(notes)


def open_job(
    content: StrPath, out: StrPath, settings: Mapping[str, Any], output: Output | None = None, saving: Saving | None = None
) -> Job:
    """Start or continue a job that writes to the folder ``out``.

    ``settings`` are JSON values that identify the job. `RunFolderError` is raised if ``out`` holds a job with other settings
    or files. ``output`` is "files" or "shards" and defaults to the kind of the content.
    """
    content, out, saving = Path(content), Path(out), saving or Saving()
    units, notes = find_units(content, out)
    output = output or ("files" if units[0].shard is None else "shards")
    check_choice("output", output, get_args(Output))
    if out.resolve() == content.resolve():
        raise SettingError(f"{out} holds the contents, so results would become contents; choose another folder", "out")
    if (saving.format, saving.quality) != (Saving.format, Saving.quality):  # older jobs lack this entry
        settings = {**settings, "saving": [saving.format, saving.quality]}
    identity = json.loads(json.dumps({"settings": dict(settings), "output": output, "contents": _digest(units)}))
    file = out / MARKS / "job.json"
    if not file.exists():
        write_bytes(file, json.dumps(identity).encode())
    stored = json.loads(file.read_text())
    if different := [name for name in identity if stored.get(name) != identity[name]]:
        problem: Any = "other data" if different == ["contents"] else "other settings"
        raise RunFolderError(f"{out} holds a job with other {' and '.join(different)}; choose another folder", out, problem)
    return Job(units, out, output, saving, notes)


def _digest(units: Sequence[Unit]) -> str:
    digest = hashlib.sha256()
    for unit in units:
        names = [unit.shard.name, str(unit.shard.stat().st_size)] if unit.shard else [source.name for source in unit.sources]
        digest.update(os.fsencode("\n".join(names)) + b"\n")
    return digest.hexdigest()


def run_unit(job: Job, unit: Unit, process: Process) -> Done:
    """Process a unit, mark it, and return its counts. A picture that fails is listed and skipped.

    Shards are written atomically, so a unit that is repeated after its worker died writes no picture twice.
    """
    if (finished := job.finished(unit)) is not None:  # its worker died after marking it
        return finished
    done, failed = 0, dict[str, str]()
    with ExitStack() as stack:
        add = stack.enter_context(write_shard(job.out / f"{unit.name}.tar")) if job.output == "shards" else None
        for name, key, read, others in _items(unit, job.output, failed):
            samples = []
            try:
                for ending, result in process(read()).items():
                    path = job.saving.path(job.out, key + ending)
                    quality = job.saving.quality
                    data = encode_picture(path, result.rgb, alpha=result.alpha, depth=result.depth, quality=quality)
                    if add is None:
                        write_bytes(path, data)
                    else:
                        samples.append(Sample(key + ending, {**others, path.suffix[1:]: data}))
                    done += 1
            except DiskFullError:
                raise
            except FAILURES as error:
                failed[name] = "not enough memory" if is_out_of_memory(error) else str(error)
            if add is not None:  # outside of the try block: an error concerns the whole shard
                for sample in samples:
                    add(sample)
    write_bytes(job.mark(unit), json.dumps({"done": done, "failed": failed}).encode())
    return Done(unit.name, done, failed)


def _items(unit: Unit, output: Output, failed: dict[str, str]) -> Iterator[Item]:
    """Yield the pictures of a unit. Add the name of a damaged shard to ``failed``."""
    if unit.shard is None:
        keys = [source.stem for source in unit.sources]
        if output == "shards":
            keys = make_unique(key.replace(".", "_") for key in keys)  # a key ends at the first dot
        for source, key in zip(unit.sources, keys, strict=True):
            yield str(source), key, source.read, {}
        return
    folder = f"{unit.name}/" if output == "files" else ""  # several shards may hold equal keys
    try:
        for sample in read_shard(unit.shard):
            others = {e: data for e, data in sample.members.items() if f".{e.lower()}" not in READABLE}
            yield f"{unit.shard}: {sample.key}", folder + sample.key, sample.read, others
    except PictureError as error:  # the rest of the shard is damaged
        failed[str(unit.shard)] = str(error)


def run_job(
    job: Job,
    factory: Factory,
    *,
    engine: str = "plain",
    shard: tuple[int, int] = (1, 1),
    device: str = "cpu",
    workers: int | None = None,
    progress: Report = ignore,
) -> Done:
    """Run the unfinished units of a job and return the counts of all units of this shard.

    ``factory`` is called once in every worker and returns the function that maps a picture to its results.
    ``engine="plain"`` runs in this process, on ``device``; "ray" runs in ``workers`` of Ray, by default one per GPU, or one
    per two cores. ``shard=(i, n)`` takes every n-th unit, starting with the i-th, for n machines.
    """
    check_choice("engine", engine, ENGINES)
    units = take_shard(job.units, shard)
    finished = {unit.name: done for unit in units if (done := job.finished(unit)) is not None}
    waiting = [unit for unit in units if unit.name not in finished]
    progress(Progress("units", len(finished), len(units)))
    if waiting:
        for done in ENGINES[engine](job, waiting, factory, device, workers):
            finished[done.unit] = done
            progress(Progress("units", len(finished), len(units)))
    failed = {name: reason for done in finished.values() for name, reason in done.failed.items()}
    return Done("{}/{}".format(*shard), sum(done.done for done in finished.values()), failed)


def take_shard(items: Sequence[T], shard: tuple[int, int]) -> Sequence[T]:
    """Return every n-th item, starting with the i-th (counted from 1), for the shard ``(i, n)``."""
    index, count = shard
    if not 1 <= index <= count:
        raise SettingError(f"shard must be (i, n) with 1 <= i <= n, got {shard}", "shard")
    return items[index - 1 :: count]


def _run_plain(job: Job, units: Sequence[Unit], factory: Factory, device: str, workers: int | None) -> Iterator[Done]:
    process = factory(device)
    for unit in units:
        yield run_unit(job, unit, process)


class Worker:
    """A Ray actor that creates the process once and runs units with it."""

    def __init__(self, job: Job, factory: Factory, device: str) -> None:
        self.job, self.process = job, factory(device)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        unit: Unit = pickle.loads(row["unit"])
        attempts = self.job.mark(unit).with_suffix(".attempts")  # a file, which survives the worker
        if attempts.exists() and attempts.stat().st_size >= ATTEMPTS:
            done = Done(unit.name, 0, {f"unit {unit.name}": f"its worker died {ATTEMPTS} times; run the job again"})
        else:
            with open(attempts, "ab") as file:
                file.write(b".")
            done = run_unit(self.job, unit, self.process)
            attempts.unlink()
        return {**done._asdict(), "failed": [list(pair) for pair in done.failed.items()]}


def _run_ray(job: Job, units: Sequence[Unit], factory: Factory, device: str, workers: int | None) -> Iterator[Done]:
    """Run units on Ray Data, with one actor per worker, and yield their counts as they finish.

    Joins the cluster at ``RAY_ADDRESS``, or starts Ray on this machine and stops it at the end. A worker reads and writes
    the files itself: only units and counts pass through Ray, so its memory does not grow with the pictures.
    """
    with requires("scale"):
        import ray
        import ray.data

    started, handler = not ray.is_initialized(), signal.getsignal(signal.SIGTERM)
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    for unit in units:
        job.mark(unit).with_suffix(".attempts").unlink(missing_ok=True)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        resources = ray.cluster_resources()
        gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        count = min(workers or gpus or max(1, cores // CORES), len(units))
        share: dict[str, Any] = {"num_gpus": min(1, gpus / count)} if gpus else {"num_cpus": max(1, cores // count)}
        # one block per unit, so that a worker that dies costs one unit
        rows = ray.data.from_items([{"unit": pickle.dumps(unit)} for unit in units], override_num_blocks=len(units))
        results = rows.map(
            Worker,  # type: ignore[arg-type]
            fn_constructor_args=(replace(job, units=()), factory, "cuda" if gpus else "cpu"),
            compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            **share,
        )
        for row in results.iter_rows():
            yield Done(row["unit"], row["done"], dict(row["failed"]))
    finally:
        if started:
            ray.shutdown()
            if signal.getsignal(signal.SIGTERM) is not handler:
                signal.signal(signal.SIGTERM, handler)  # ray.init replaces it in the main thread


ENGINES: Mapping[str, Callable[..., Iterator[Done]]] = {"plain": _run_plain, "ray": _run_ray}
