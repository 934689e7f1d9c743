"""Compare matching methods by decoders for VGG-19 at several style weights and seeds, on held-out pairs.

    python benchmarks/style_methods.py --content content-train.zip --style style-train.zip \
        --test-content content-val.zip --test-style style-val.zip --vgg vgg16.safetensors \
        [--official decoder.pth] [--methods efdm adain] [--iterations 12000] [--jobs 3] [--out runs/methods]
    python benchmarks/style_methods.py --table [--out runs/methods]

All decoders have the same data and budget. Several are trained at a time on one GPU, and each is evaluated when it is
trained. Repeat an interrupted command to continue it. `measures.jsonl` has a line for every decoder, so the work can be
divided over several machines. The record `comparison.json` holds the curve of every method, content LPIPS against style
distance over style weights and strengths, and the difference between EFDM and every other complete method at equal content
and at equal style. The error of a difference is its standard deviation over bootstrap samples of pairs and seeds.
"""

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from efdm.data import find_pictures
from efdm.environment import environment
from efdm.progress import Progress, Report
from efdm.style import Settings
from efdm.style.candidates import load_candidates
from efdm.style.evaluate import evaluate, make_pairs
from efdm.style.measures import load_metrics
from efdm.style.report import groups
from efdm.style.training import train
from efdm.training.capture import Speed
from efdm.training.device import default_device
from efdm.training.files import Record, append_line, read_lines, write_json
from efdm.training.folder import CHECKPOINT, DONE

Array = np.ndarray[Any, np.dtype[np.float64]]
# method -> style weights and seeds
RUNS = {
    "efdm": ((4, 10, 25), (0, 1)), "adain": ((4, 10, 25), (0, 1)), "hm": ((4, 10), (0,)), "adamean": ((4, 10), (0,)),
    "adastd": ((4, 10), (0,)),
}  # fmt: skip
STRENGTHS = (0.5, 0.75, 1.0)
AT_EQUAL_CONTENT = ("style_distance", "skewness_error", "kurtosis_error", "infinity_norm_error")
LEVELS = 9  # values of x, evenly over the range that two curves share; they are compared at all but the ends
MEASURES = "measures.jsonl"
OFFICIAL = "official"  # the decoder of pytorch-AdaIN
SAMPLES = 500  # of the bootstrap
SECONDS = 10.0  # between two lines of progress
SPEEDS: Mapping[str, Speed] = {"cpu": "plain", "cuda": "compile+graph"}


def run_name(method: str, weight: float, seed: int) -> str:
    return f"{method}-w{weight:g}-s{seed}"


def names(methods: Iterable[str]) -> list[str]:
    return [run_name(m, w, s) for m in methods for w, s in product(*RUNS[m])]


def train_decoder(name: str, options: argparse.Namespace) -> None:
    folder = options.out / name
    if (folder / DONE).exists():
        return
    method, weight, seed = name.split("-")
    settings = Settings.for_encoder(
        "vgg19", content=options.content, style=options.style, method=method, style_weight=float(weight[1:]),
        seed=int(seed[1:]), iterations=options.iterations, batch=options.batch, size=options.size,
        short_side=options.short_side, speed=SPEEDS[default_device()], save_every=2000, preview_every=0,
    )  # fmt: skip
    train(settings, folder, resume=(folder / CHECKPOINT).exists(), progress=printer(name))


def printer(name: str) -> Report:
    """Return a callback that prints the progress of a decoder."""
    last = -math.inf

    def report(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS:
            last = time.monotonic()
            print(f"{name}: {progress.label} {progress.done}/{progress.total}", flush=True)

    return report


def measure(name: str, network: str | Path, options: argparse.Namespace) -> Record:
    """Return a line with the measures of a network, ``(strengths, pairs)`` each."""
    contents, styles = find_pictures(options.test_content), find_pictures(options.test_style)
    device = default_device()
    candidates = load_candidates((), {name: network}, strengths=STRENGTHS, device=device)
    records = evaluate(
        make_pairs(contents, styles, most=options.pairs), candidates[1:], load_metrics(vgg=options.vgg, device=device),
        options.out / "evaluation" / name, device=device, progress=printer(name),
    )  # fmt: skip
    found = sorted(groups(records), key=lambda group: group.candidate["strength"])
    values = {m: [group.values(m) for group in found] for m in ("lpips", *AT_EQUAL_CONTENT)}
    return {"network": name, "iterations": options.iterations, **values, "environment": environment(device)}


def run(name: str, options: argparse.Namespace) -> Record:
    """Train a decoder and return its measures. The official decoder is only measured."""
    if name == OFFICIAL:
        return measure(name, options.official, options)
    train_decoder(name, options)
    return measure(name, options.out / name / "network.safetensors", options)


def measured(folder: Path) -> dict[str, dict[str, Array]]:
    """Return the measures of every network, ``(strengths, pairs)`` each."""
    lines = read_lines(folder / MEASURES) if (folder / MEASURES).exists() else []
    return {line["network"]: {m: np.array(line[m]) for m in ("lpips", *AT_EQUAL_CONTENT)} for line in lines}


def best(curves: list[tuple[Array, Array]], levels: Array) -> Array:
    """Return the lowest y of several curves ``(x, y)`` at each level of x; NaN outside all of them."""
    found = [np.interp(levels, x[np.argsort(x)], y[np.argsort(x)], left=np.inf, right=np.inf) for x, y in curves]
    lowest = np.min(found, axis=0)
    return np.where(np.isinf(lowest), np.nan, lowest)


def curve(data: dict[str, dict[str, Array]], method: str, x: str, y: str, levels: Array, pairs: Any, seeds: Any) -> Array:
    """Return the mean over seeds of the best y at every level of x, over the style weights of a method."""
    weights = RUNS[method][0]
    rows = []
    for seed in seeds:
        runs = [data[run_name(method, weight, seed)] for weight in weights]
        rows.append(best([(run[x][:, pairs].mean(1), run[y][:, pairs].mean(1)) for run in runs], levels))
    return np.mean(rows, axis=0)


def shared_levels(data: dict[str, dict[str, Array]], other: str, x: str) -> Array:
    """Return values of x in the range that the curves of EFDM and another method share."""
    ends = []
    for method in ("efdm", other):
        means = np.stack([run[x].mean(1) for name, run in data.items() if name.startswith(f"{method}-")])
        ends.append((means.min(), means.max()))
    low, high = max(a for a, _ in ends), min(b for _, b in ends)
    return np.linspace(low, high, LEVELS)[1:-1]


def compare(data: dict[str, dict[str, Array]]) -> dict[str, Any]:
    """Return the differences between EFDM and the other methods, with errors."""
    generator = np.random.default_rng(0)
    count = next(iter(data.values()))["lpips"].shape[1]

    def difference(other: str, x: str, y: str, levels: Array, pairs: Any, choose: Callable[[Any], Any]) -> Array:
        ours, theirs = (curve(data, m, x, y, levels, pairs, choose(RUNS[m][1])) for m in ("efdm", other))
        return ours - theirs

    def redraw(seeds: Any) -> Any:
        return generator.choice(seeds, len(seeds))

    result: dict[str, Any] = {}
    measures = [*(("lpips", y) for y in AT_EQUAL_CONTENT), ("style_distance", "lpips")]
    complete = [method for method in RUNS if set(names([method])) <= data.keys()]
    for (x, y), other in product(measures, complete[1:] if "efdm" in complete else ()):
        at = (other, x, y, shared_levels(data, other, x))
        whole = difference(*at, slice(None), lambda seeds: seeds)
        samples = [difference(*at, generator.integers(count, size=count), redraw) for _ in range(SAMPLES)]
        result[f"{y} at equal {x}, efdm - {other}"] = {
            "levels": at[-1].round(4).tolist(), "differences": whole.round(5).tolist(),
            "mean": round(float(np.nanmean(whole)), 5), "error": round(float(np.nanmean(samples, 1).std()), 5),
        }  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("content", "style", "test-content", "test-style", "vgg", "official"):
        parser.add_argument(f"--{name}", default="")
    for name, default in {"iterations": 12_000, "batch": 8, "size": 256, "short-side": 288, "jobs": 3, "pairs": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--methods", nargs="+", choices=tuple(RUNS), default=tuple(RUNS))
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--table", action="store_true", help="compare existing measures without training")
    options = parser.parse_args()

    wanted = [*names(options.methods), *([OFFICIAL] if options.official else [])]
    if not options.table:
        # processes that train several decoders each, so that a step is compiled once per process
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            missing = [name for name in wanted if name not in measured(options.out)]
            for done in as_completed([pool.submit(run, name, options) for name in missing]):
                append_line(options.out / MEASURES, done.result())
    data = measured(options.out)
    curves = {
        name: {measure: values.mean(1).round(4).tolist() for measure, values in run.items()} for name, run in data.items()
    }
    record: dict[str, Any] = {"environment": environment(default_device()), "strengths": STRENGTHS, "curves": curves}
    record["comparison"] = compare(data)
    write_json(options.out / "comparison.json", record)
    for name, row in record["comparison"].items():
        print(f"{name}: {row['mean']:+.4f} ± {row['error']:.4f}")


if __name__ == "__main__":
    main()
