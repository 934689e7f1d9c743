"""Measure ways of stylising on the same pairs of pictures: one record for each pair and way, in a run that can be resumed.

`efdm.style.ways` has what can be measured; `efdm.style.report` makes tables, plots and sheets of the records.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.data import PictureError, Source, on_white, resize, resize_short_side, write_picture
from efdm.environment import environment
from efdm.ops.choices import check_choice
from efdm.style.measures import Lens, Seen
from efdm.style.ways import Share, Way
from efdm.training.files import Record, mend_lines, read_lines, rounded

SEEN_AT = 384  # short side at which pictures are measured, whatever the size they were made in: distances depend on it
RECORDS = "records.jsonl"


class Pair(NamedTuple):
    content: Source
    style: Source


class Progress(NamedTuple):
    """Told before and while a picture is made: pictures done and wanted, and which way is at work."""

    done: float
    total: int
    label: str


# --- pairs -----------------------------------------------------------------------------------------------------------

PAIRINGS = ("order", "grid")


def make_pairs(
    contents: Sequence[Source], styles: Sequence[Source], *, pairing: str = "order", most: int | None = None
) -> list[Pair]:
    """``"order"``: content i with style i. ``"grid"``: every content with every style, those of ``"order"`` first."""
    check_choice("pairing", pairing, PAIRINGS)
    if pairing == "order":
        found = [Pair(c, s) for c, s in zip(contents, styles, strict=False)]
    else:  # along diagonals, so that the first of them use all pictures alike
        count = len(styles)
        found = [Pair(c, styles[(i + shift) % count]) for shift in range(count) for i, c in enumerate(contents)]
    return found[:most]


def open_picture(source: Source, size: int | None) -> Tensor:
    """``(1, 3, h, w)``, on white, with this short side (default: its own)."""
    picture = source.read()
    rgb = picture.rgb if picture.alpha is None else on_white(picture.rgb, picture.alpha)
    return (rgb if size is None else resize_short_side(rgb, size))[None]


def stems(sources: Sequence[Source]) -> dict[str, str]:
    """Short file names for pictures: without their folders, unless two would be called the same."""
    last = [PurePosixPath(s.stem).name for s in sources]
    lower = [n.lower() for n in last]  # Photo beside photo is one file on some systems
    found: dict[str, str] = {}
    taken = set[str]()
    for source, name in zip(sources, last, strict=True):
        wanted = name if lower.count(name.lower()) == 1 else source.stem.replace("/", "_")
        stem, count = wanted, 1
        while stem.lower() in taken:  # a/b beside a_b
            count += 1
            stem = f"{wanted}-{count}"
        taken.add(stem.lower())
        found[source.name] = stem
    return found


# --- records ---------------------------------------------------------------------------------------------------------


def read_records(run: Path) -> list[Record]:
    """The records of a run; a last line that was cut short is left out."""
    return read_lines(run / RECORDS) if (run / RECORDS).exists() else []


def _key(way: Mapping[str, object], content: str, style: str, settings: Mapping[str, object]) -> str:
    return json.dumps([dict(way), content, style, dict(settings)], sort_keys=True)


def slug(label: str) -> str:
    """A label as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")


def _places(way: Way, size: int | None, content: str, style: str) -> dict[str, str]:
    """Where pictures go, below the folder of the run: apart for every size and for everything that is told of a way."""
    made_at = "own-size" if size is None else f"{size}px"
    mark = hashlib.sha256(json.dumps(dict(way.told), sort_keys=True).encode()).hexdigest()[:8]
    return {
        "content": f"inputs/{made_at}/content/{content}.png",
        "style": f"inputs/{made_at}/style/{style}.png",
        "output": f"outputs/{made_at}/{slug(way.label)}-{mark}/{content}__{style}.png",
    }


def picture_paths(run: Path, record: Record) -> dict[str, Path]:
    """The files of a record's "content", "style" and "output"."""
    content, style = record["files"]
    places = record.get("pictures") or {  # of a run from before sizes and weights had folders of their own
        "content": f"inputs/content/{content}.png",
        "style": f"inputs/style/{style}.png",
        "output": f"outputs/{slug(record['label'])}/{content}__{style}.png",
    }
    return {name: run / place for name, place in places.items()}


# --- the run ---------------------------------------------------------------------------------------------------------


def evaluate(
    pairs: Sequence[Pair],
    ways: Sequence[Way],
    lens: Lens,
    run: Path,
    *,
    size: int | None = 512,
    seen_at: int | None = SEEN_AT,
    device: str | torch.device = "cpu",
    progress: Callable[[Progress], object] = lambda _: None,
    unreadable: Callable[[PictureError], object] | None = None,
) -> list[Record]:
    """Make and measure every picture that the run has no record of yet; all records of the run are returned.

    A pair whose pictures cannot be read is told to ``unreadable`` and left out; without it, it is an error.

    Pictures are known by their names, so a run is for one set of contents and one of styles.

    ``size`` is the short side at which pictures are made, ``seen_at`` the one at which they are measured (None: their
    own). A picture's time includes the encoding of its style; the first of each way is not timed.
    """
    folders = [slug(w.label) for w in ways]
    if twice := [w.label for w in ways if folders.count(slug(w.label)) > 1]:
        raise ValueError(f"{' and '.join(map(repr, twice))} cannot be told apart; give each way a name of its own")
    device = torch.device(device)
    settings: dict[str, object] = {"size": size, "seen_at": seen_at, "measures": list(lens.names)}
    records = read_records(run)
    done = {_key(r["way"], r["content"], r["style"], r["settings"]) for r in records}
    wanted = [(p, [w for w in ways if _key(w.told, p.content.name, p.style.name, settings) not in done]) for p in pairs]
    total, finished = len(pairs) * len(ways), len(pairs) * len(ways) - sum(len(missing) for _, missing in wanted)
    names = [stems(list({s.name: s for s in side}.values())) for side in zip(*pairs, strict=True)] if pairs else [{}, {}]
    where = environment(device)
    warm: set[str] = set()
    run.mkdir(parents=True, exist_ok=True)
    with (run / RECORDS).open("a") as file:
        mend_lines(run / RECORDS)
        for pair, missing in wanted:
            if not missing:
                continue
            try:
                content, style = (open_picture(source, size).to(device) for source in pair)
            except PictureError as error:
                if unreadable is None:
                    raise
                unreadable(error)
                finished += len(missing)
                continue
            content_name, style_name = names[0][pair.content.name], names[1][pair.style.name]
            places = _places(missing[0], size, content_name, style_name)
            for side, picture in (("content", content), ("style", style)):
                write_picture(run / places[side], picture[0])
            seen_content, seen_style = (_see(lens, picture, seen_at) for picture in (content, style))
            for way in missing:
                progress(Progress(finished, total, way.label))

                def share(part: float, before: int = finished, label: str = way.label) -> None:
                    progress(Progress(before + part, total, label))

                output, seconds = _timed(way, content, style, share, device)
                places = _places(way, size, content_name, style_name)
                record: Record = {
                    "label": way.label, "way": dict(way.told),
                    "content": pair.content.name, "style": pair.style.name, "files": [content_name, style_name],
                    "pictures": places,
                    "settings": settings, "pixels": list(content.shape[-2:]),
                    "seconds": _short(seconds) if way.label in warm and way.told["kind"] != "untouched" else None,
                    "measures": _measure(lens, output, seen_content, seen_style), "environment": where,
                }  # fmt: skip
                warm.add(way.label)
                write_picture(run / places["output"], output[0])
                file.write(json.dumps(record) + "\n")
                file.flush()
                records.append(record)
                finished += 1
    progress(Progress(finished, total, ""))
    return records


def _timed(way: Way, content: Tensor, style: Tensor, share: Share, device: torch.device) -> tuple[Tensor, float]:
    _wait(device)
    begin = time.perf_counter()
    output = way.run(content, style, share)
    _wait(device)
    seconds = time.perf_counter() - begin
    if output.shape != content.shape or not bool(output.isfinite().all()):
        raise FloatingPointError(f"{way.label} made a picture of shape {tuple(output.shape)} that cannot be measured")
    # as it will be written: pictures are 8 bits
    return (output.clamp(0, 1) * 255).round() / 255, seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _see(lens: Lens, picture: Tensor, seen_at: int | None) -> Seen:
    return lens.see(picture if seen_at is None else resize_short_side(picture, seen_at))


def _measure(lens: Lens, output: Tensor, content: Seen, style: Seen) -> dict[str, float | None]:
    seen = lens.see(resize(output, (content.images.shape[-2], content.images.shape[-1])))
    return {k: _short(float(v)) for k, v in lens.measure(seen, content, style).items()}


def _short(value: float) -> float | None:
    """JSON knows no infinity."""
    return rounded(value) if math.isfinite(value) else None
