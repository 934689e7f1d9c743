"""Evaluate candidates on the same pairs of images: one record per pair and candidate, in a folder that can be resumed.

`efdm.style.candidates` lists what can be evaluated; `efdm.style.report` renders tables, plots and sheets from the records.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from efdm.data import PictureError, Source, on_white, resize, resize_short_side, write_picture
from efdm.data.loading import digest
from efdm.environment import environment
from efdm.errors import DamagedFileError
from efdm.files import fit_name
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.style.candidates import Candidate
from efdm.style.measures import NAMES, Metrics
from efdm.text import make_unique
from efdm.training.files import Record, append_line, mend_lines, read_lines, rounded, write_json

MEASURED_AT = 384  # short side at which images are measured; distances depend on it, so it does not follow the output size
RECORDS = "records.jsonl"
SETUPS = "setups.json"  # candidate, settings and environment, which are the same for many records
Pairing = Literal["order", "grid"]


class Pair(NamedTuple):
    """A content and a style."""

    content: Source
    style: Source


def make_pairs(
    contents: Sequence[Source], styles: Sequence[Source], *, pairing: Pairing = "order", most: int | None = None
) -> list[Pair]:
    """Pair contents with styles.

    ``"order"`` pairs content i with style i. ``"grid"`` pairs every content with every style and starts with the pairs of
    ``"order"``. ``most`` is the maximum number of pairs.
    """
    check_choice("pairing", pairing, get_args(Pairing))
    if pairing == "order":
        pairs = [Pair(c, s) for c, s in zip(contents, styles, strict=False)]
    else:  # along diagonals, so that a prefix uses all images equally often
        count = len(styles)
        pairs = [Pair(c, styles[(i + shift) % count]) for shift in range(count) for i, c in enumerate(contents)]
    return pairs[:most]


def read_resized(source: Source, size: int | None) -> Tensor:
    """Return the image ``(1, 3, h, w)`` over white, resized to the short side ``size`` unless that is None."""
    picture = source.read()
    rgb = picture.rgb if picture.alpha is None else on_white(picture.rgb, picture.alpha)
    return (rgb if size is None else resize_short_side(rgb, size))[None]


def stems(sources: Sequence[Source]) -> dict[str, str]:
    """Return a unique file stem for each source, without its folder where that is unambiguous."""
    last = [PurePosixPath(s.stem).name for s in sources]
    count = Counter(map(str.lower, last))  # some file systems ignore case
    names = (n if count[n.lower()] == 1 else s.stem.replace("/", "_") for s, n in zip(sources, last, strict=True))
    return dict(zip((s.name for s in sources), make_unique(names), strict=True))


def read_records(run: Path) -> list[Record]:
    """Return the records of a run, each with its setup. An incomplete last line is skipped."""
    setups = _read_setups(run)
    lines = read_lines(run / RECORDS) if (run / RECORDS).exists() else []
    return [{**setups.get(line.get("setup", ""), {}), **line} for line in lines]


def _read_setups(run: Path) -> dict[str, Record]:
    path = run / SETUPS
    try:
        return dict(json.loads(path.read_text())) if path.exists() else {}
    except ValueError as error:
        raise DamagedFileError(path, "is not JSON", "restore it from a copy, or delete the folder") from error


def _record_key(candidate: Mapping[str, object], content: str, style: str, settings: Mapping[str, object]) -> str:
    return json.dumps([dict(candidate), content, style, dict(settings)], sort_keys=True)


def slug(label: str) -> str:
    """Return the label as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")


def _paths(candidate: Candidate, size: int | None, content: str, style: str) -> dict[str, str]:
    """Return the paths of the images, relative to the run. Each size and each candidate has its own folder."""
    folder = "own-size" if size is None else f"{size}px"
    mark = digest(dict(candidate.metadata))[:8]
    return {
        "content": fit_name(f"inputs/{folder}/content/{content}", ".png"),
        "style": fit_name(f"inputs/{folder}/style/{style}", ".png"),
        "output": fit_name(f"outputs/{folder}/{slug(candidate.label)}-{mark}/{content}__{style}", ".png"),
    }


def _without_record(
    pairs: Sequence[Pair], candidates: Sequence[Candidate], settings: Mapping[str, object], records: Sequence[Record]
) -> dict[Pair, list[Candidate]]:
    """Return the candidates that have no record of a pair with these settings, by pair."""
    done = {_record_key(r["candidate"], r["content"], r["style"], r["settings"]) for r in records}
    missing: dict[Pair, list[Candidate]] = {}
    for pair, candidate in product(pairs, candidates):
        if _record_key(candidate.metadata, pair.content.name, pair.style.name, settings) not in done:
            missing.setdefault(pair, []).append(candidate)
    return missing


def picture_paths(run: Path, record: Record) -> dict[str, Path]:
    """Return the files of a record: "content", "style" and "output"."""
    return {name: run / path for name, path in record.get("pictures", {}).items()}


def evaluate(
    pairs: Sequence[Pair],
    candidates: Sequence[Candidate],
    metrics: Metrics,
    run: Path,
    *,
    size: int | None = 512,
    measured_at: int = MEASURED_AT,
    device: str | torch.device = "cpu",
    progress: Report = ignore,
    unreadable: Callable[[PictureError], object] | None = None,
) -> list[Record]:
    """Stylize and measure every pair that the run has no record of yet, and return all records of the run.

    Images are identified by name, so use a run for one set of contents and one set of styles only. The time of an image
    includes the encoding of its style; the first image of each candidate is not timed.

    Args:
        size: short side at which images are stylized; None keeps their own size.
        measured_at: short side at which images are measured.
        unreadable: called with the error of a pair that cannot be read, which is then skipped. Without it the error is
            raised.
    """
    device = torch.device(device)
    settings: dict[str, object] = {"size": size, "measured_at": measured_at, "measures": list(NAMES)}
    run.mkdir(parents=True, exist_ok=True)
    (run / RECORDS).touch()
    mend_lines(run / RECORDS)
    records, setups = read_records(run), _read_setups(run)
    todo = _without_record(pairs, candidates, settings, records)
    total = len(pairs) * len(candidates)
    finished = total - sum(map(len, todo.values()))
    content_stems, style_stems = (stems(list({p[side].name: p[side] for p in pairs}.values())) for side in (0, 1))
    machine, warm = environment(device), set[str]()
    for pair, missing in todo.items():
        try:
            content, style = (read_resized(source, size).to(device) for source in pair)
        except PictureError as error:
            if unreadable is None:
                raise
            unreadable(error)
            finished += len(missing)
            continue
        stem = (content_stems[pair.content.name], style_stems[pair.style.name])
        paths = _paths(missing[0], size, *stem)
        write_picture(run / paths["content"], content[0])
        write_picture(run / paths["style"], style[0])
        references = [metrics.extract(resize_short_side(image, measured_at)) for image in (content, style)]
        for candidate in missing:
            image = Progress(candidate.label, finished, total)
            progress(image)
            output, seconds = _timed(candidate, content, style, partial(_report_part, progress, image), device)
            features = metrics.extract(resize(output, references[0].images.shape[-2:]))
            measures = {k: _rounded_or_none(float(v)) for k, v in metrics.measure(features, *references).items()}
            paths = _paths(candidate, size, *stem)
            timed = candidate.label in warm and candidate.metadata["kind"] != "unchanged"
            warm.add(candidate.label)
            setup: Record = {"candidate": dict(candidate.metadata), "settings": settings, "environment": machine}
            line: Record = {
                "label": candidate.label, "setup": digest(setup)[:8], "content": pair.content.name, "style": pair.style.name,
                "pictures": paths, "pixels": list(content.shape[-2:]),
                "seconds": _rounded_or_none(seconds) if timed else None, "measures": measures,
            }  # fmt: skip
            write_picture(run / paths["output"], output[0])
            if line["setup"] not in setups:
                setups[line["setup"]] = setup
                write_json(run / SETUPS, setups)
            append_line(run / RECORDS, line)
            records.append({**setup, **line})
            finished += 1
    progress(Progress("images", finished, total))
    return records


def _report_part(progress: Report, image: Progress, part: Progress) -> None:
    """Report the progress within an image, such as that of an optimizer."""
    progress(replace(image, values={"this image": part.done / part.total}))


def _timed(
    candidate: Candidate, content: Tensor, style: Tensor, progress: Report, device: torch.device
) -> tuple[Tensor, float]:
    synchronize = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    output = candidate.run(content, style, progress)
    synchronize()
    seconds = time.perf_counter() - start
    if not output.isfinite().all():
        raise FloatingPointError(f"{candidate.label} returned values that are not finite")
    return (output.clamp(0, 1) * 255).round() / 255, seconds  # measured with 8 bits, as written to the file


def _rounded_or_none(value: float) -> float | None:
    """Return the rounded value, or None if it is not finite, because JSON has no infinity."""
    return rounded(value) if math.isfinite(value) else None
