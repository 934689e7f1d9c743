"""Options and messages of `efdm stylize` and `efdm match`, which read and write files of pictures."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Annotated, Any, NamedTuple, get_args

import typer

from efdm.apps.cli.errors import sentence
from efdm.apps.cli.options import choice, option, parse_shard
from efdm.apps.cli.printing import print_error, print_message, print_text, print_warning
from efdm.apps.cli.progress import show_progress
from efdm.data import WRITABLE
from efdm.data.bulk import ENGINES, Factory, Job, run_job, take_shard
from efdm.data.bulk import Output as Form
from efdm.data.folders import MAX_MEMBER_BYTES, is_video
from efdm.data.images import PictureError, write_bytes
from efdm.data.results import FORMATS
from efdm.data.shards import find_shards
from efdm.errors import SettingError
from efdm.style.jobs import Result
from efdm.text import plural

PIPE = Path("-")
COPIES = "efdm-"  # prefix of the temporary folder with copies of pipes
SHOWN = 20  # failures of a job that are printed
INTERRUPTED = "interrupted; the results written so far are complete, and --skip-existing continues"

Out = Annotated[Path, option("A file for one result, a folder for several, or - for stdout.", "--out", "-o")]
Format = Annotated[str, choice(FORMATS, "Format of results in a folder or on stdout. A file is written by its extension.")]
Quality = Annotated[int, option("Quality of JPEG, WebP and AVIF.", min=1, max=100)]
SkipExisting = Annotated[bool, option("Skip results that already exist.", "--skip-existing")]
Shard = Annotated[str, option("i/n: run part i of n, one per machine, as a resumable job. See docs/guide/scale.md.")]
Engine = Annotated[str, choice(ENGINES, "Engine of a job. plain: this process; ray: the workers of Ray.")]
Workers = Annotated[int | None, option("Workers of Ray. Default: one per GPU, or one per two cores.", min=1)]
Output = Annotated[str, choice(get_args(Form), "Results of a job: files or WebDataset shards. Default: as CONTENT.")]


def content(more: str = "") -> Any:
    """Return the argument for the contents. Files that cannot be read are reported like other failures, not by typer."""
    text = "Pictures, folders or zips, - for stdin, a video, or WebDataset shards (.tar)."
    return typer.Argument(help=f"{text} {more}".rstrip(), readable=False)


class JobOptions(NamedTuple):
    """The options of a command for jobs."""

    shard: str
    engine: str
    workers: int | None
    output: str

    def is_job(self, contents: Sequence[Path], out: Path) -> bool:
        """Return True if an option asks for a job, or if the content is WebDataset shards.

        Raise SettingError if the shard does not exist, or if a job has several contents, a video, or no folder for its
        results.
        """
        take_shard((), parse_shard(self.shard))  # raises before a job is stored in the folder
        asked = bool(self.shard or self.output or self.engine != "plain" or any(map(find_shards, contents)))
        if asked and (len(contents) > 1 or is_video(contents, out)):
            what = f"{len(contents)} contents" if len(contents) > 1 else f"the video {contents[0]}"
            raise SettingError(f"a job takes one folder, zip or set of shards, got {what}")
        if asked and (out == PIPE or (out.suffix.lower() in WRITABLE and not out.is_dir())):
            raise SettingError(f"a job writes to a folder, got {'stdout' if out == PIPE else out}", "out")
        return asked

    def run(self, job: Job, factory: Factory, device: str) -> None:
        """Run a job, print its notes, counts and failures, and exit as `finish` does."""
        for note in job.notes:
            print_warning(note)
        arguments: Any = {"engine": self.engine, "shard": parse_shard(self.shard), "workers": self.workers}
        with show_progress() as progress:
            done = run_job(job, factory, device=device, progress=progress, **arguments)
        for name, reason in list(done.failed.items())[:SHOWN]:
            print_error(reason if name in reason else f"{name}: {reason}")
        if len(done.failed) > SHOWN:
            print_error(f"and {len(done.failed) - SHOWN} more, listed in {job.out / '.done'}")
        finish(Result(done.done, len(done.failed)), job.out)


@contextmanager
def piped(contents: Sequence[Path], out: Path, format: str) -> Iterator[tuple[list[Path], Path]]:
    """Yield the paths with temporary files in place of stdin, shell pipes and stdout."""
    if out != PIPE and not any(map(_is_pipe, contents)):
        yield list(contents), out
        return
    with TemporaryDirectory(prefix=COPIES) as folder:
        paths = [
            _copy(path, Path(folder, "stdin" if path == PIPE else f"pipe-{k}")) if _is_pipe(path) else path
            for k, path in enumerate(contents)
        ]
        if out != PIPE:
            yield paths, out
            return
        if sys.stdout.isatty():
            raise SettingError("a picture cannot be shown in a terminal; pass a file, or redirect stdout", "out")
        if is_video(contents, out):
            raise SettingError("a video cannot be written to stdout; pass a file such as out.mp4", "out")
        target = Path(folder, f"stdout.{format or 'png'}")
        try:
            yield paths, target
        except SettingError as error:
            raise SettingError(_hide_copies(str(error)).replace(target.name, "stdout"), error.settings) from error
        if target.exists():
            try:
                sys.stdout.buffer.write(target.read_bytes())
                sys.stdout.flush()
            except OSError as error:
                raise OSError(error.errno, error.strerror, "stdout") from error


def _is_pipe(path: Path) -> bool:
    return path == PIPE or (path.is_fifo() and path.parts[:2] == ("/", "dev"))  # such as <(command) in bash


def _copy(path: Path, copy: Path) -> Path:
    with sys.stdin.buffer if path == PIPE else path.open("rb") as file:
        data = file.read(MAX_MEMBER_BYTES + 1)
    if len(data) > MAX_MEMBER_BYTES:
        raise SettingError(f"{path} has more than {MAX_MEMBER_BYTES} bytes, the limit for a pipe")
    write_bytes(copy, data)
    return copy


def print_failure(name: str, error: Exception) -> None:
    text = sentence(error)
    text = text if isinstance(error, PictureError) or name in text else f"{name}: {text}"
    print_error(_hide_copies(text))


def _hide_copies(text: str) -> str:
    """Return a message in which the copy of stdin is named "stdin"."""
    return re.sub(rf"{re.escape(gettempdir())}/{COPIES}\w+/", "", text)


def finish(result: Result, out: Path, noun: str = "picture") -> None:
    """Print the counts of a command and exit with code 1 if some pictures failed, or 2 if all did."""
    if result.skipped:
        print_message(f"{plural(result.skipped, 'result')} skipped, because the files exist")
    if result.done and out != PIPE:
        print_text(f"{plural(result.done, noun)} in {out}" if out.is_dir() or noun != "picture" else out)
    if result.failed:
        if result.failed + result.done > 1:
            print_error(f"{result.failed} of {result.done + result.failed} pictures failed")
        raise typer.Exit(1 if result.done else 2)
