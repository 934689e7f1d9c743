"""Options of resumable jobs, for `efdm stylize` and `efdm match`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import typer

from efdm.apps.cli.options import choice, parse_shard
from efdm.apps.cli.printing import print_error, print_text
from efdm.apps.cli.progress import show_progress
from efdm.data import WRITABLE
from efdm.data.bulk import ENGINES, Factory, Job, run_job
from efdm.data.bulk import Output as Form
from efdm.data.shards import find_shards
from efdm.errors import SettingError
from efdm.text import plural

Shard = Annotated[
    str, typer.Option(help="i/n: run part i of n of a job that can be resumed, for n machines. See docs/guide/scale.md.")
]
Engine = Annotated[str, choice(ENGINES, "Where a job runs.")]
Workers = Annotated[int, typer.Option(min=0, help="Workers of Ray. Defaults to one per GPU, or one per two cores.")]
Output = Annotated[
    str, choice(get_args(Form), "Results of a job, as files or WebDataset shards. Defaults to the form of CONTENT.")
]
SHOWN = 20  # failures


class JobOptions(NamedTuple):
    """The options of a command that concern jobs."""

    shard: str
    engine: str
    workers: int
    output: str

    def is_job(self, contents: Sequence[Path], out: Path) -> bool:
        """Return True if an option asks for a job, or if the content is WebDataset shards.

        Raise SettingError if a job has several contents or no folder for its results.
        """
        asked = bool(self.shard or self.output or self.engine != "plain" or any(map(find_shards, contents)))
        if asked and len(contents) > 1:
            raise SettingError(f"a job takes one folder, zip or set of shards, got {len(contents)} contents")
        if asked and (out.name == "-" or (out.suffix.lower() in WRITABLE and not out.is_dir())):
            raise SettingError(f"a job writes to a folder, got {'stdout' if out.name == '-' else out}", "out")
        return asked


def run(job: Job, factory: Factory, options: JobOptions, device: str) -> None:
    """Run a job, print its counts and failures, and exit with the code of `efdm stylize`."""
    part = parse_shard(options.shard or None)
    with show_progress() as progress:
        done = run_job(
            job,
            factory,
            engine=options.engine,
            shard=part,
            device=device,
            workers=options.workers or None,
            progress=progress,
        )
    for name, reason in list(done.failed.items())[:SHOWN]:
        print_error(reason if name in reason else f"{name}: {reason}")
    if done.done:
        print_text(f"{plural(done.done, 'picture')} in {job.out}")
    if done.failed:
        print_error(f"{plural(len(done.failed), 'failure')}, listed in {job.out / '.done'}")
        raise typer.Exit(1 if done.done else 2)
