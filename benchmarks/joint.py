"""Measure how close joint matching comes to the joint distribution of the style, and its time, and write a record.

    python benchmarks/joint.py --content ZIP --style ZIP --vgg FILE [--pairs 12] [--device cuda] [--out FILE]

Distances are taken between features of the normalized VGG-19 (--vgg) of content and style, 512 x 512 pixels: the sliced
Wasserstein-1 distance over 256 directions that no matcher uses, as a share of that of EFDM, and the Gram error.
"halves" compares two halves of the positions of the same style. Without --content only times are measured. "bound" is the
longest acceptable time of a joint match: (rotations + 1) plain matches with their matrix products, and one WCT. Times on the
CPU are processor times of one thread, which depend little on other processes.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import mean

import torch
from records import make_parser, write_record
from torch import Tensor

from efdm import efdm, prepare
from efdm.data import find_pictures
from efdm.models.vgg import VGG
from efdm.models.weights import load_normalized_encoder
from efdm.nn.losses import random_directions, sliced_loss
from efdm.ops import PreparedStyle, match_jointly, match_principal, wct
from efdm.style.evaluate import make_pairs, read_resized
from efdm.style.measures import gram_distance

LAYERS = ("relu3_1", "relu4_1")
SHAPES = {"relu3_1": (1, 256, 128, 128), "relu4_1": (1, 512, 64, 64)}  # of a picture of 512 x 512
DIRECTIONS, SIDE, ROTATIONS = 256, 512, 10
_unfinished = partial(match_jointly, finish="none")
CANDIDATES: dict[str, Callable[[Tensor, PreparedStyle], Tensor]] = {
    "efdm": efdm,
    "wct": wct,
    "pca": match_principal,
    "wct, efdm": partial(match_jointly, rotations=0),
    "10 rotations": partial(_unfinished, rotations=10, start="none"),
    **{f"wct, {k} rotations": partial(_unfinished, rotations=k) for k in (1, 2, 5, 10)},
    "wct, principal axes, 9 rotations, step 1.5": partial(_unfinished, axes="principal", step=1.5),
    "wct, 5 rotations, efdm": partial(match_jointly, rotations=5),
    "wct, 10 rotations, efdm": match_jointly,
}


def distances(features: Iterable[dict[str, tuple[Tensor, Tensor]]]) -> list[dict[str, object]]:
    """Return a row for every layer and candidate, averaged over pairs of content and style features."""
    shares: dict[tuple[str, str], list[float]] = {}
    errors: dict[tuple[str, str], list[float]] = {}
    for number, pair in enumerate(features, 1):
        for layer, (x, y) in pair.items():
            directions = random_directions(DIRECTIONS, x.shape[1], torch.Generator().manual_seed(99)).to(x.device)
            style = prepare(y)
            made = {name: match(x, style) for name, match in CANDIDATES.items()} | {"halves": y[..., ::2]}
            found = {
                name: sliced_loss(out, y[..., 1::2] if name == "halves" else y, directions, norm="l1").item()
                for name, out in made.items()
            }
            for name, out in made.items():
                shares.setdefault((layer, name), []).append(found[name] / found["efdm"])
                errors.setdefault((layer, name), []).append(gram_distance(out, y).item())
        print(f"pair {number}", flush=True)
    return [
        {
            "layer": key[0], "candidate": key[1], "share": round(mean(found), 3), "least": round(min(found), 3),
            "most": round(max(found), 3), "gram_error": round(mean(errors[key]), 4),
        }
        for key, found in shares.items()
    ]  # fmt: skip


def encode(options: argparse.Namespace) -> Iterable[dict[str, tuple[Tensor, Tensor]]]:
    """Yield the features of content and style after every layer, ``(1, c, n)``, for each pair."""
    encoder = load_normalized_encoder(VGG("vgg19", LAYERS[-1]), path=options.vgg).eval().to(options.device)
    contents, styles = find_pictures(options.content), find_pictures(options.style)
    for pair in make_pairs(contents, styles, most=options.pairs):
        pictures = [read_resized(source, SIDE)[..., :SIDE, :SIDE].to(options.device) for source in pair]
        taps = [encoder.taps(picture, LAYERS) for picture in pictures]
        yield {layer: (x.flatten(2), y.flatten(2)) for layer, x, y in zip(LAYERS, *taps, strict=True)}


def times(device: str, dtype: str, rounds: int) -> list[dict[str, object]]:
    """Return a row of milliseconds for every shape, with a style that is prepared once or in every call."""
    rows = []
    for layer, shape in SHAPES.items():
        x, y = (torch.randn(shape).relu().to(device, getattr(torch, dtype)) for _ in range(2))
        matrix, values = torch.randn(shape[1], shape[1], device=device), x.float().flatten(2)
        calls: dict[str, Callable[[], object]] = {"product": lambda: matrix @ values}  # noqa: B023
        for form, style in (("", y), (", prepared", prepare(y))):
            for name, match in (("efdm", efdm), ("wct", wct), ("joint", match_jointly)):
                calls[name + form] = partial(match, x, style)
        found = _milliseconds(calls, device, rounds)
        for form, products in (("", 2), (", prepared", 1)):
            matches = (ROTATIONS + 1) * (found[f"efdm{form}"] + products * found["product"])
            found[f"bound{form}"] = matches + found[f"wct{form}"]
        rows.append({"layer": layer, "shape": list(shape), "dtype": dtype, **{k: round(v, 3) for k, v in found.items()}})
        print(rows[-1], flush=True)
    return rows


def _milliseconds(calls: dict[str, Callable[[], object]], device: str, rounds: int) -> dict[str, float]:
    """Return the shortest time of each call. The calls alternate, so that other processes affect all of them alike."""
    synchronize, clock = (
        (torch.cuda.synchronize, time.perf_counter) if device == "cuda" else (lambda: None, time.process_time)
    )
    found: dict[str, list[float]] = {}
    for _ in range(rounds + 1):  # the first round compiles kernels and fills caches
        for name, call in calls.items():
            synchronize()
            start = clock()
            call()
            synchronize()
            found.setdefault(name, []).append(clock() - start)
    return {name: 1e3 * min(each[1:]) for name, each in found.items()}


@torch.no_grad()
def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--content", type=Path, help="folder or zip of content pictures")
    parser.add_argument("--style", type=Path, help="folder or zip of style pictures")
    parser.add_argument("--vgg", type=Path, help="normalized VGG-19")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20, help="repetitions of every timed call; the shortest counts")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record: dict[str, object] = {"rotations": ROTATIONS}
    if options.content:
        record |= {"pairs": options.pairs, "directions": DIRECTIONS, "side": SIDE, "distances": distances(encode(options))}
    dtypes = ("float32", "bfloat16") if options.device == "cuda" else ("float32",)
    record["milliseconds"] = [row for dtype in dtypes for row in times(options.device, dtype, options.rounds)]
    write_record(record, options.out, f"joint-{options.device}.json", options.device)


if __name__ == "__main__":
    main()
