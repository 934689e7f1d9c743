"""A preference study: pairs rendered by several candidates, blind, and a database of votes.

A study is a folder with ``study.json``, ``pictures/`` under random names, and ``votes.sqlite``. Each item of a study shows
raters a content, a style and two or more outputs. `efdm.style.study_report` evaluates the votes.
"""

from __future__ import annotations

import csv
import io
import json
import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from torch import Tensor

from efdm.data import Source, find_pictures, resize, write_picture
from efdm.data.embedded import photos, styles
from efdm.errors import DamagedFileError, RunFolderError, SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.style.candidates import Candidate, load_candidates
from efdm.style.demo import PAINTINGS, PHOTOS
from efdm.style.evaluate import Pair, make_pairs, read_resized
from efdm.training.files import write_json

FORMAT = "efdm study 1"
Question = Literal["favourite", "ab"]
# (pair, content, style) -> output, images (1, 3, h, w)
Render = Callable[[Pair, Tensor, Tensor], Tensor]
DEFAULT_CANDIDATES = ("small:efdm", "small:adain", "small:adamean")
SCHEMA = """create table if not exists votes (
    rater text not null, item integer not null, choice text not null, position integer not null, seconds real,
    time text not null,
    primary key (rater, item)
)"""


@dataclass(frozen=True)
class Item:
    """A question: which of ``outputs`` (candidate -> file) shows the content in the style best?"""

    content: str
    style: str
    content_file: str
    style_file: str
    outputs: Mapping[str, str]


class Vote(NamedTuple):
    """The candidate that a rater chose, its position on the page from 0, and the seconds that it took."""

    rater: str
    item: int
    choice: str
    position: int
    seconds: float | None
    time: str


class Study:
    """A study in a folder, created by `make_study`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            content = json.loads((self.folder / "study.json").read_text())
            self.seed: int = content["seed"]
            self.candidates: dict[str, dict[str, Any]] = content["candidates"]
            self.items = [Item(**item) for item in content["items"]]
            known = content["format"] == FORMAT
        except FileNotFoundError as error:
            raise RunFolderError(f"{self.folder} is not a study; make one first", self.folder, "not started") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(self.folder / "study.json", "is not a study", "make it again") from error
        if not known:
            raise DamagedFileError(self.folder / "study.json", f"has format {content['format']!r}", f"expected {FORMAT!r}")
        self.files = {file for item in self.items for file in (item.content_file, item.style_file, *item.outputs.values())}

    def order(self, rater: str, item: int) -> list[str]:
        """Return the candidates of an item in the order in which this rater sees them."""
        labels = sorted(self.items[item].outputs)
        return random.Random(f"{self.seed} {rater} {item}").sample(labels, len(labels))

    def next_item(self, rater: str) -> int | None:
        """Return an item without a vote of this rater, or None at the end. Every rater has their own order of items."""
        with self._database() as database:
            done = {row[0] for row in database.execute("select item from votes where rater = ?", (rater,))}
        order = random.Random(f"{self.seed} {rater}").sample(range(len(self.items)), len(self.items))
        return next((item for item in order if item not in done), None)

    def vote(self, rater: str, item: int, position: int, seconds: float | None = None) -> bool:
        """Store a vote on the disk. Return False if this rater has already voted on the item; the first vote counts."""
        if not 0 <= item < len(self.items) or not 0 <= position < len(self.items[item].outputs):
            raise ValueError(f"the study has no output {position} of item {item}")
        choice, now = self.order(rater, item)[position], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._database() as database:
            done = database.execute(
                "insert or ignore into votes values (?, ?, ?, ?, ?, ?)", (rater, item, choice, position, seconds, now)
            )
            return done.rowcount == 1

    def count(self, rater: str) -> int:
        """Return the number of votes of a rater."""
        with self._database() as database:
            return int(database.execute("select count(*) from votes where rater = ?", (rater,)).fetchone()[0])

    def votes(self) -> list[Vote]:
        """Return all votes in the order in which they were stored."""
        with self._database() as database:
            return [Vote(*row) for row in database.execute("select * from votes order by rowid")]

    def csv(self) -> str:
        """Return all votes as CSV, with the names of the pictures and the candidates in the order shown."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*Vote._fields, "content", "style", "shown"])
        for vote in self.votes():
            item = self.items[vote.item]
            writer.writerow([*vote, item.content, item.style, "|".join(self.order(vote.rater, vote.item))])
        return out.getvalue()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection; its changes are on the disk when the block ends."""
        with closing(sqlite3.connect(self.folder / "votes.sqlite", timeout=30)) as database, database:
            database.execute("pragma synchronous = full")
            database.execute(SCHEMA)
            yield database


def make_study(
    folder: str | Path,
    pairs: Sequence[Pair],
    renders: Mapping[str, tuple[Render, Mapping[str, object]]],
    *,
    question: Question = "favourite",
    size: int = 384,
    seed: int = 0,
    progress: Report = ignore,
) -> Study:
    """Render every pair by every candidate and write a study.

    Args:
        renders: label -> function that renders a pair, and a description for the report; see `load_renders`.
        question: ``"favourite"`` asks once per pair for the best of all outputs, ``"ab"`` asks for the better one of every
            two outputs.
        size: short side of all pictures.
        seed: seed of the orders in which raters see items and outputs.
    """
    check_choice("question", question, get_args(Question))
    folder = Path(folder)
    if (folder / "study.json").exists():
        raise RunFolderError(f"{folder} already holds a study; choose another folder", folder, "finished")
    if len(renders) < 2 or not pairs:
        counts = f"{len(renders)} and {len(pairs)}"
        raise SettingError(f"a study needs at least two candidates and one pair, got {counts}", "candidate")
    items: list[Item] = []
    for done, pair in enumerate(pairs):
        content, style = (read_resized(source, size) for source in pair)
        content_file, style_file = (_write(folder, image) for image in (content, style))
        outputs: dict[str, str] = {}
        for label, (render, _) in renders.items():
            progress(Progress("rendering", done * len(renders) + len(outputs), len(pairs) * len(renders)))
            output = render(pair, content, style).clamp(0, 1)
            outputs[label] = _write(folder, resize(output, content.shape[-2:]))
        for labels in [tuple(outputs)] if question == "favourite" else combinations(outputs, 2):
            shown = {label: outputs[label] for label in labels}
            items.append(Item(pair.content.name, pair.style.name, content_file, style_file, shown))
    progress(Progress("rendering", len(pairs) * len(renders), len(pairs) * len(renders)))
    study = {
        "format": FORMAT, "question": question, "seed": seed,
        "candidates": {label: dict(about) for label, (_, about) in renders.items()},
        "items": [asdict(item) for item in items],
    }  # fmt: skip
    write_json(folder / "study.json", study)  # written last, so an interrupted study cannot be opened
    return Study(folder)


def _write(folder: Path, image: Tensor) -> str:
    file = f"{secrets.token_hex(8)}.png"  # a random name, which does not reveal the candidate
    write_picture(folder / "pictures" / file, image[0])
    return file


def embedded_pairs(most: int | None = None) -> list[Pair]:
    """Return pairs of the pictures in the package."""
    shown = ((photos(), PHOTOS), (styles(), PAINTINGS))
    contents, paintings = ([Source(name, name, paths[name]) for name in names] for paths, names in shown)
    return make_pairs(contents, paintings, pairing="grid", most=most)


def load_renders(
    specs: Sequence[str] = DEFAULT_CANDIDATES,
    pairs: Sequence[Pair] = (),
    *,
    vgg: str | Path | None = None,
    iterations: int | None = None,
    device: Any = "cpu",
) -> dict[str, tuple[Render, Mapping[str, object]]]:
    """Return the candidates that ``specs`` describe, by name.

    ``MODEL``, ``MODEL:METHOD`` or ``MODEL:METHOD:STRENGTH`` is a row of `NETWORKS`, with a row of `MATCHERS`.
    ``NAME=FILE.safetensors`` is a network written by a training run. ``optimizer:METHOD`` is a row of `OPTIMIZERS`.
    ``NAME=FOLDER`` is a folder or zip of pictures from elsewhere, named CONTENT__STYLE with any extension.

    Args:
        pairs: every folder must have a picture for each of these pairs.
        vgg: file of VGG-16, for optimizers and networks that use it.
        iterations: iterations of the optimizers.
    """
    renders: dict[str, tuple[Render, Mapping[str, object]]] = {}
    for spec in specs:
        name, equals, file = spec.partition("=")
        if name in renders:
            raise SettingError(f"two candidates are named {name!r}; choose different names", "candidate")
        if equals and not file.endswith(".safetensors"):
            renders[name] = (_render_from_folder(Path(file), pairs), {"kind": "pictures", "folder": Path(file).name})
        else:
            candidate = _parse_candidate(name, file, vgg=vgg, iterations=iterations, device=device)
            renders[name] = (_render_with(candidate), candidate.metadata)
    return renders


def _parse_candidate(name: str, file: str, **settings: Any) -> Candidate:
    if file:
        return load_candidates(networks={name: file}, **settings)[-1]
    model, *rest = name.split(":")
    if model == "optimizer" and len(rest) == 1:
        return load_candidates(optimizers=rest, **settings)[-1]
    try:
        strengths = [float(text) for text in rest[1:]] or [1.0]
    except ValueError:
        strengths = []
    if len(strengths) != 1:
        raise SettingError(f"expected MODEL, MODEL:METHOD or MODEL:METHOD:STRENGTH, got {name!r}", "candidate")
    return load_candidates([model], methods=rest[:1], strengths=strengths, **settings)[-1]


def _render_with(candidate: Candidate) -> Render:
    return lambda pair, content, style: candidate.run(content, style, ignore)


def _render_from_folder(path: Path, pairs: Sequence[Pair]) -> Render:
    pictures = {source.stem: source for source in find_pictures(path)}
    if absent := [name for pair in pairs if (name := _stem(pair)) not in pictures]:
        raise SettingError(f"{path} has no picture {absent[0]}; name pictures CONTENT__STYLE", "candidate")
    return lambda pair, content, style: read_resized(pictures[_stem(pair)], None)


def _stem(pair: Pair) -> str:
    return f"{pair.content.stem}__{pair.style.stem}"
