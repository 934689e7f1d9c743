"""Measure ways of stylising on the same pairs of pictures: one record for each pair and way, in a run that can be resumed.

A way is anything that makes a picture of a content and a style: a trained network with a matcher and a strength, or an
optimiser of pixels. `efdm.style.report` makes tables, plots and sheets of the records.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from torch import Tensor

from efdm.data import Source, on_white, resize, resize_short_side, write_picture
from efdm.environment import environment
from efdm.models import VGG
from efdm.models.weights import PRETRAINED, checksum, find, pretrained
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.style.measures import Lens, Seen
from efdm.style.optimise import OPTIMISERS, optimise
from efdm.style.stylizer import Stylizer

SEEN_AT = 384  # short side at which pictures are measured, whatever the size they were made in: distances depend on it
Record = dict[str, Any]  # a line of records.jsonl
Share = Callable[[float], object]  # told how much of one picture is done, 0 to 1


class Pair(NamedTuple):
    content: Source
    style: Source


@dataclass(frozen=True, eq=False)
class Way:
    """``run(content, style, share)`` makes a picture; ``told`` goes into the records and tells this way from others."""

    label: str
    told: Mapping[str, object]
    run: Callable[[Tensor, Tensor, Share], Tensor]


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
    return {s.name: n if last.count(n) == 1 else s.stem.replace("/", "_") for s, n in zip(sources, last, strict=True)}


# --- ways ------------------------------------------------------------------------------------------------------------


def untouched() -> Way:
    """The content as it is: no content is lost, and no style gained."""
    return Way("content untouched", {"kind": "untouched"}, lambda content, style, share: content)


def network_way(name: str, stylizer: Stylizer, *, method: str, strength: float = 1.0, weights: str = "") -> Way:
    """A trained network. ``weights`` (a checksum) keeps apart networks that were called the same at different times."""
    check_choice("method", method, tuple(MATCHERS))
    if not 0 <= strength <= 1:
        raise ValueError(f"strength={strength} is outside 0 (content) to 1 (style)")
    told = {"kind": "network", "model": name, "method": method, "strength": strength, "weights": weights}

    def run(content: Tensor, style: Tensor, share: Share) -> Tensor:
        return stylizer.stylize(content, style, method=method, strength=strength)

    return Way(f"{name} {method} {strength:g}", told, run)


def optimiser_way(method: str, encoder: VGG, *, iterations: int | None = None) -> Way:
    """A row of `OPTIMISERS`."""
    check_choice("optimiser", method, tuple(OPTIMISERS))
    steps = OPTIMISERS[method].iterations if iterations is None else iterations
    told = {"kind": "optimiser", "model": f"optimiser {method}", "encoder": encoder.name, "iterations": steps}

    def run(content: Tensor, style: Tensor, share: Share) -> Tensor:
        def tell(done: int, total: int, loss: float) -> None:
            share(done / total)

        return optimise(content, style, method, encoder, iterations=steps, progress=tell)

    return Way(f"optimiser {method} {steps}", told, run)


class Trained(NamedTuple):
    """A network to be measured: what to call it, ready for use, the matcher it was trained with, checksum of its file."""

    name: str
    stylizer: Stylizer
    method: str
    weights: str


def open_pretrained(name: str, *, vgg: str | Path | None = None, device: str | torch.device = "cpu") -> Trained:
    """A model that `efdm.models.weights` knows. ``vgg`` is a file of VGG-16."""
    check_choice("model", name, tuple(PRETRAINED))
    network, weight = PRETRAINED[name]
    made = pretrained(name, vgg=vgg if network == "vgg16" else None)
    return Trained(name, Stylizer(made, device), "adain" if "adain" in weight else "efdm", checksum(find(weight))[:12])


def open_trained(
    name: str, file: str | Path, *, vgg: str | Path | None = None, device: str | torch.device = "cpu"
) -> Trained:
    """A network of a training of one's own: the file says which network it is and which matcher it was trained with."""
    from safetensors import SafetensorError, safe_open

    if not Path(file).is_file():
        raise ValueError(f"there is no file {file} for the network {name}")
    try:
        with safe_open(str(file), "pt") as opened:
            told = opened.metadata() or {}
        settings = json.loads(told.get("settings", "{}"))
        network = told["network"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{file} does not say what it is; give a network.safetensors that `efdm train` wrote") from error
    check_choice("network", network, tuple(PRETRAINED))
    made = pretrained(network, weights=file, vgg=vgg if network == "vgg16" else None)
    return Trained(name, Stylizer(made, device), settings.get("method", "efdm"), checksum(file)[:12])


# --- records ---------------------------------------------------------------------------------------------------------


def read_records(run: Path) -> list[Record]:
    """The records of a run; a last line that was cut short is left out."""
    path = run / "records.jsonl"
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.strip()]


def _key(way: Mapping[str, object], content: str, style: str, settings: Mapping[str, object]) -> str:
    return json.dumps([dict(way), content, style, dict(settings)], sort_keys=True)


def slug(label: str) -> str:
    """A label as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")


def picture_path(run: Path, label: str, content: str, style: str) -> Path:
    return run / "outputs" / slug(label) / f"{content}__{style}.png"


def input_path(run: Path, side: str, name: str) -> Path:
    return run / "inputs" / side / f"{name}.png"


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
) -> list[Record]:
    """Make and measure every picture that the run has no record of yet; all records of the run are returned.

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
    _mend(run / "records.jsonl")
    with (run / "records.jsonl").open("a") as file:
        for pair, missing in wanted:
            if not missing:
                continue
            content, style = (open_picture(source, size).to(device) for source in pair)
            content_name, style_name = names[0][pair.content.name], names[1][pair.style.name]
            write_picture(input_path(run, "content", content_name), content[0])
            write_picture(input_path(run, "style", style_name), style[0])
            seen_content, seen_style = (_see(lens, picture, seen_at) for picture in (content, style))
            for way in missing:
                progress(Progress(finished, total, way.label))

                def share(part: float, before: int = finished, label: str = way.label) -> None:
                    progress(Progress(before + part, total, label))

                output, seconds = _timed(way, content, style, share, device)
                record: Record = {
                    "label": way.label, "way": dict(way.told),
                    "content": pair.content.name, "style": pair.style.name, "files": [content_name, style_name],
                    "settings": settings, "pixels": list(content.shape[-2:]),
                    "seconds": _short(seconds) if way.label in warm and way.told["kind"] != "untouched" else None,
                    "measures": _measure(lens, output, seen_content, seen_style), "environment": where,
                }  # fmt: skip
                warm.add(way.label)
                write_picture(picture_path(run, way.label, content_name, style_name), output[0])
                file.write(json.dumps(record) + "\n")
                file.flush()
                records.append(record)
                finished += 1
    progress(Progress(finished, total, ""))
    return records


def _mend(path: Path) -> None:
    """Drop a last line that was cut short, so that the next one begins on a line of its own."""
    if path.exists():
        text = path.read_text()
        if text and not text.endswith("\n"):
            path.write_text(text[: text.rfind("\n") + 1])


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
    """Six digits; JSON knows no infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
