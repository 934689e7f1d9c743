"""Options and messages of `efdm stylize` and `efdm match`, which read and write files of pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from efdm.apps.cli.errors import sentence
from efdm.apps.cli.options import choice
from efdm.apps.cli.printing import print_error, print_message, print_text
from efdm.data.folders import MAX_MEMBER_BYTES
from efdm.data.images import PictureError
from efdm.data.results import FORMATS, Saving
from efdm.errors import SettingError
from efdm.style.jobs import Result
from efdm.text import plural

PIPE = Path("-")
INTERRUPTED = "interrupted; the results written so far are complete, and --skip-existing continues"

Out = Annotated[Path, typer.Option("--out", "-o", help="A file for one result, a folder for several, or - for stdout.")]
Format = Annotated[str, choice(FORMATS, "Format of results in a folder or on stdout. A file is written by its extension.")]
Quality = Annotated[int, typer.Option(min=1, max=100, help="Quality of JPEG, WebP and AVIF.")]
SkipExisting = Annotated[bool, typer.Option("--skip-existing", help="Keep results that exist and make only the others.")]


def saving(format: str, quality: int, skip_existing: bool) -> Saving:
    return Saving(format, quality, "skip" if skip_existing else "replace")


@contextmanager
def piped(contents: Sequence[Path], out: Path, format: str) -> Iterator[tuple[list[Path], Path]]:
    """Yield the paths with temporary files in place of stdin, pipes of the shell and stdout."""
    if out != PIPE and not any(map(_is_pipe, contents)):
        yield list(contents), out
        return
    with TemporaryDirectory(prefix="efdm-") as folder:
        paths = [
            _copy(path, Path(folder, "stdin" if path == PIPE else f"pipe-{k}")) if _is_pipe(path) else path
            for k, path in enumerate(contents)
        ]
        if out != PIPE:
            yield paths, out
            return
        if sys.stdout.isatty():
            raise SettingError("a picture cannot be shown in a terminal; pass a file, or redirect stdout", "out")
        target = Path(folder, f"stdout.{format or 'png'}")
        yield paths, target
        if target.exists():
            sys.stdout.buffer.write(target.read_bytes())


def _is_pipe(path: Path) -> bool:
    return path == PIPE or (path.is_fifo() and path.parts[:2] == ("/", "dev"))  # such as <(command) in bash


def _copy(path: Path, copy: Path) -> Path:
    with sys.stdin.buffer if path == PIPE else path.open("rb") as file:
        data = file.read(MAX_MEMBER_BYTES + 1)
    if len(data) > MAX_MEMBER_BYTES:
        raise SettingError(f"{path} has more than {MAX_MEMBER_BYTES} bytes, the limit of a picture from a pipe")
    copy.write_bytes(data)
    return copy


def print_failure(name: str, error: Exception) -> None:
    text = sentence(error)
    print_error(text if isinstance(error, PictureError) or name in text else f"{name}: {text}")


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
