"""Time the training steps of classifiers with and without mixing, and write a record.

    python benchmarks/dg.py [--device cpu|cuda] [--out FILE] [--backbones NAME ...] [--batch N] [--size N]

The record has two parts. "steps": the steps of ERM, MixStyle, EFDMix without and with gradient to the style, distribution
noise, and EFDMix written with three calls of torch.sort, for each backbone and speed; the ratios to ERM are of the same
run, and the memory is that of all methods together. "lanes": iterations per second of several EFDMix runs on one GPU in one
process. results/side-by-side.json compares this with one process per run.

Stages and augmentations are those of the recipes. Images and weights are random, since they do not affect the time. Variants
alternate within every round, so that all are measured under the same conditions; times are medians. On a GPU a closed gate
costs as much as an open one. On a CPU it skips the work, so times are means over many steps.
"""

import argparse
import dataclasses
import gc
import statistics
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from baselines import three_sort
from records import make_parser, write_record
from torch import Tensor

from efdm.data.domains import DomainSet
from efdm.dg.settings import Settings
from efdm.dg.step import make_step
from efdm.environment import environment
from efdm.lab import load_recipe
from efdm.models.backbones import build_backbone
from efdm.nn import FeatureMix, draw, mix_after
from efdm.nn.pairing import random_pairs
from efdm.recognition.workers import set_threads
from efdm.training.device import default_device
from efdm.training.lanes import Work, side_by_side

METHODS = ("erm", "mixstyle", "efdmix", "efdmix-flow", "distribution-noise", "three_sort")
# backbone -> the recipe whose stages and augmentation are timed
RECIPES = {
    "mobilenetv2_100": "pacs_leave_one_out_mobilenetv2",
    "resnet50": "pacs_leave_one_out_resnet50",
    "resnet18": "pacs_leave_one_out_resnet18",
    "tiny": "digits_demo",
}
LEAVE_ONE_OUT = {"iterations": 5000, "batch": 64}
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {"backbones": ["resnet18", "resnet50"], "batch": 128, "size": 224, "rounds": 15, "steps": 10,
             "speeds": ["compile+graph"], "side_by_side": ["resnet18"], "lanes": [1, 4]},
    "cpu": {"backbones": ["tiny"], "batch": 64, "size": 32, "rounds": 7, "steps": 40, "speeds": ["plain"],
            "side_by_side": ["tiny"], "lanes": []},
}  # fmt: skip


class ThreeSort(FeatureMix):
    """EFDMix as in the pseudo-code of the paper: two sorts, an argsort of the index, a gather."""

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        batch, device = features.shape[0], features.device
        gate = draw.gate(self.p, device, self.generator)
        kept = draw.beta(self.alpha or 0.1, batch, device, self.generator)
        partner = random_pairs(batch, None, device, self.generator)
        if draw.closed(gate):
            return features
        weight = torch.where(gate, 1 - kept, 0.0).to(features.dtype)[:, None, None, None]
        return features + weight * (three_sort(features, features[partner].detach()) - features)


def pictures(count: int, side: int, device: str) -> DomainSet:
    """Return noise images of seven classes in four domains."""
    generator = torch.Generator().manual_seed(0)
    domains = torch.arange(count) % 4
    names = ["a", "b", "c", "d"]
    places = {name: (domains == number).nonzero()[:, 0] for number, name in enumerate(names)}
    images = torch.randint(256, (count, 3, side, side), generator=generator, dtype=torch.uint8)
    labels = torch.randint(7, (count,), generator=generator)
    splits = {name: {"train": at, "val": at[:0], "test": at} for name, at in places.items()}
    return DomainSet(images, labels, domains, [*map(str, range(count))], [*map(str, range(7))], names, splits).to(device)


class Variant:
    """A prepared step of a method."""

    def __init__(self, data: DomainSet, settings: Settings, method: str) -> None:
        torch.manual_seed(0)
        model = build_backbone(settings.backbone, len(data.classes))
        if method == "three_sort":
            mix_after(model, settings.stages, ThreeSort())
        settings = dataclasses.replace(settings, method="erm" if method == "three_sort" else method)
        self.step = make_step(model, data, settings)
        self.batches = [torch.randperm(len(data))[: settings.batch].to(settings.device) for _ in range(8)]
        self.count = 0
        self.step.prepare(self.batches[0])
        for _ in range(3):
            self()

    def __call__(self) -> None:
        self.step(self.count, self.batches[self.count % 8], lr=1e-4)
        self.count += 1

    def work(self, steps: int) -> Work[None]:
        for _ in range(steps):
            self()
            yield


def seconds(call: Callable[[], None], times: int, device: str) -> float:
    """Return the mean time of a call over several calls in a row, including the work of the device."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(times):
        call()
    _wait(device)
    return (time.perf_counter() - start) / times


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_steps(data: DomainSet, settings: Settings, rounds: int, steps: int) -> dict[str, Any]:
    start = time.perf_counter()
    variants = {method: Variant(data, settings, method) for method in METHODS}
    set_up = time.perf_counter() - start
    times: dict[str, list[float]] = {method: [] for method in variants}
    for number in range(rounds):
        order = list(variants.items())
        for method, call in order[number % len(order) :] + order[: number % len(order)]:
            times[method].append(seconds(call, steps, settings.device))
    found = {}
    for method, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        # in the same round, so that a slowdown of the machine affects both
        ratio = statistics.median(a / b for a, b in zip(values, times["erm"], strict=True))
        found[method] = {
            "median_ms": round(middle * 1e3, 3), "spread_ms": round((high - low) / 2 * 1e3, 3), "to_erm": round(ratio, 4),
        }  # fmt: skip
    memory = round(torch.cuda.max_memory_allocated() / 2**30, 2) if settings.device == "cuda" else None
    for variant in variants.values():
        variant.step.release()
    return {
        "backbone": settings.backbone, "batch": settings.batch, "size": settings.size, "stages": list(settings.stages),
        "precision": settings.precision, "speed": settings.speed, "set_up_seconds": round(set_up, 1),
        "memory_of_all_gib": memory,
        "times": found,
    }  # fmt: skip


def time_lanes(data: DomainSet, settings: Settings, lanes: int, steps: int) -> dict[str, Any]:
    """Return the iterations per second of all lanes together. Graphs are captured before the clock starts."""
    variants = [Variant(data, settings, "efdmix") for _ in range(lanes)]
    _wait(settings.device)
    start = time.perf_counter()
    works = [variant.work(steps) for variant in variants]
    side_by_side(works, device=torch.device(settings.device), lanes=lanes, finished=lambda _: None)
    _wait(settings.device)
    rate = lanes * steps / (time.perf_counter() - start)
    for variant in variants:
        variant.step.release()
    return {
        "backbone": settings.backbone, "batch": settings.batch, "stages": list(settings.stages), "speed": settings.speed,
        "method": "efdmix", "lanes": lanes, "iterations_per_second": round(rate, 2),
        "run_seconds": round(LEAVE_ONE_OUT["iterations"] * lanes / rate, 2),
    }  # fmt: skip


def with_recipe(settings: Settings, backbone: str, **changes: Any) -> Settings:
    """Return the settings with the stages and augmentation of the backbone's recipe, if it has one, and ``changes``."""
    own = load_recipe(RECIPES[backbone]).settings if backbone in RECIPES else {}
    wanted = {name: own[name] for name in ("stages", "augmentation") if name in own}
    return dataclasses.replace(settings, backbone=backbone, **wanted, **changes)


def clean(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=tuple(DEFAULTS), default=default_device())
    for name in ("backbones", "speeds"):
        parser.add_argument(f"--{name}", nargs="+")
    for name in ("batch", "size", "rounds", "steps"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--side-by-side", nargs="*", help="backbones of the lanes")
    parser.add_argument("--lanes", nargs="*", type=int)
    given = parser.parse_args()
    chosen = {name: value for name, value in vars(given).items() if value is not None}
    o = argparse.Namespace(**{"out": None, **DEFAULTS[given.device], **chosen})
    small = o.size < 100
    images, side = 400 if o.device == "cpu" else 4000, o.size if small else 227
    data = pictures(images, side, o.device)
    common = Settings(
        "noise", ("a", "b", "c"), ("d",), batch=o.batch, size=o.size, device=o.device,
        augmentation="digits" if small else "paper", precision="fp32" if o.device == "cpu" else "bf16",
    )  # fmt: skip
    set_threads(common)
    record: dict[str, Any] = {"environment": environment(o.device), "steps": [], "lanes": []}

    def keep(kind: str, row: dict[str, Any]) -> None:  # an interrupted benchmark keeps its finished rows
        record[kind].append(row)
        write_record(record, o.out, f"dg-{o.device}.json")

    for backbone, speed in product(o.backbones, o.speeds):
        clean(o.device)
        row = time_steps(data, with_recipe(common, backbone, speed=speed), o.rounds, o.steps)
        shown = "  ".join(f"{m} {t['median_ms']} ms ({t['to_erm']:.3f})" for m, t in row["times"].items())
        print(f"{backbone} batch {o.batch} {speed}: {shown}", flush=True)
        keep("steps", row)
    for backbone, speed in product(o.side_by_side, o.speeds):
        run = with_recipe(common, backbone, batch=min(o.batch, LEAVE_ONE_OUT["batch"]), speed=speed)
        for count in o.lanes:
            clean(o.device)
            row = time_lanes(data, run, count, o.rounds * o.steps)
            rate, spent = f"{row['iterations_per_second']} iterations/s", f"{row['run_seconds']} s"
            shown = f"{rate}, {LEAVE_ONE_OUT['iterations']} iterations of each in {spent}"
            print(f"{run.backbone} batch {run.batch} {speed}, {count} lanes: {shown}", flush=True)
            keep("lanes", row)


if __name__ == "__main__":
    main()
