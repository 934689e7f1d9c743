"""Benchmark matching on this machine and write a record.

    python benchmarks/match.py [--device cpu|cuda] [--out FILE]

All times are medians. Inputs rotate through more memory than the last-level cache holds. On a GPU, three times are measured
with device events:

- the time per call in a queue of calls, as in a training loop; the ratios use this time;
- the time of a single synchronized call, which includes the work of the host;
- the time per call in a replayed CUDA graph, which is the work of the device alone.

Ratios compare times of the same run.
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch
from baselines import adain, copy_limit, sort_scatter, three_sort
from cases import CASES, Case
from match_report import report
from records import make_parser, write_record
from torch import Tensor

from efdm import EFDMix, efdm, histogram_match, kernels, prepare
from efdm.environment import environment
from efdm.ops import Partners
from efdm.training.device import default_device

ROTATED_BYTES = 256 << 20  # several times a typical last-level cache
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def _seconds(call: Callable[[int], object], calls: int, device: str) -> float:
    """Return the seconds per call of ``calls`` consecutive calls."""
    if device == "cpu":
        start = time.perf_counter()
        for i in range(calls):
            call(i)
        return (time.perf_counter() - start) / calls
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for i in range(calls):
        call(i)
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / calls


def measure(call: Callable[[int], object], device: str, budget: float) -> dict[str, float]:
    """Return median and spread (half the interquartile range) in microseconds; on a GPU also the other two times."""
    start = time.perf_counter()
    for i in range(3):
        if time.perf_counter() - start < budget:
            call(i)
    single = _seconds(call, 1, device)
    queue = 1 if device == "cpu" else max(3, min(50, int(2e-3 / single)))
    min_samples = 9 if device == "cuda" else 5 if single < budget else 2
    times = [single] if single >= budget else []
    start = time.perf_counter()
    while len(times) < min_samples or (time.perf_counter() - start < budget and len(times) < 100):
        times.append(_seconds(call, queue, device))
    low, middle, high = statistics.quantiles(times, n=4)
    result = {"median_us": round(middle * 1e6, 2), "spread_us": round((high - low) / 2 * 1e6, 2), "samples": len(times)}
    if device == "cuda":
        result["alone_us"] = round(statistics.median(_seconds(call, 1, device) for _ in range(21)) * 1e6, 2)
        result["device_us"] = _graph_microseconds(call, queue)
    return result


def _graph_microseconds(call: Callable[[int], object], calls: int) -> float | None:
    """Return the time per call in a replayed CUDA graph, or None if the call cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for i in range(calls):
                call(i)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    times = [_seconds(lambda i: graph.replay(), 1, "cuda") / calls for _ in range(9)]
    return round(statistics.median(times) * 1e6, 2)


def make_inputs(case: Case, dtype: torch.dtype, device: str, values: str) -> list[tuple[Tensor, Tensor]]:
    """Return enough pairs of content and style to exceed the last-level cache."""
    size = 3 * torch.tensor(case.shape).prod().item() * dtype.itemsize
    g = torch.Generator(device).manual_seed(0)
    pairs = []
    for _ in range(max(2, min(16, int(ROTATED_BYTES // size) + 1))):
        x = torch.randn(case.shape, device=device, generator=g)
        y = torch.randn(case.shape, device=device, generator=g) * 2 + 1
        if values == "after ReLU":
            x, y = x.relu(), y.relu()
        elif values == "8-bit levels":
            x, y = (t.mul(64).add(128).round().clamp(0, 255) / 255 for t in (x, y))
        pairs.append((x.to(dtype), y.to(dtype)))
    return pairs


@torch.no_grad()
def run_case(case: Case, dtype_name: str, device: str, values: str, budget: float) -> dict[str, object]:
    """Time all candidates on one case and return its row of the record."""
    pairs = make_inputs(case, DTYPES[dtype_name], device, values)
    sets, prepared = len(pairs), [prepare(y) for _, y in pairs]
    compiled = torch.compile(adain)
    layer = EFDMix(p=1.0).train()
    flip = Partners(torch.arange(case.shape[0] - 1, -1, -1, device=device))
    candidates: dict[str, Callable[[int], object]] = {
        "efdm": lambda i: efdm(*pairs[i % sets]),
        "efdm_prepared": lambda i: efdm(pairs[i % sets][0], prepared[i % sets]),
        "efdm_tolerant": lambda i: efdm(*pairs[i % sets], tolerance=0.1),
        "efdm_tolerant_prepared": lambda i: efdm(pairs[i % sets][0], prepared[i % sets], tolerance=0.1),
        "efdm_partners": lambda i: efdm(pairs[i % sets][0], flip),
        "efdmix_layer": lambda i: layer(pairs[i % sets][0]),
        "histogram_match": lambda i: histogram_match(*pairs[i % sets]),
        "three_sort": lambda i: three_sort(*pairs[i % sets]),
        "sort_scatter": lambda i: sort_scatter(*pairs[i % sets]),
        "adain": lambda i: adain(*pairs[i % sets]),
        "adain_compiled": lambda i: compiled(*pairs[i % sets]),
        "copy_limit": lambda i: copy_limit(*pairs[i % sets]),
    }
    x, y = pairs[0]
    exact = bool(torch.equal(efdm(x, y).flatten(2).sort(-1).values, y.flatten(2).sort(-1).values))
    # two rounds, so that a temporary slowdown of the machine does not affect a single candidate
    rounds = [{name: measure(f, device, budget / 2) for name, f in candidates.items()} for _ in range(2)]
    times = {name: min((r[name] for r in rounds), key=lambda t: t["median_us"]) for name in candidates}
    n = pairs[0][0].flatten(2).shape[-1]
    return {
        "case": case.name,
        "shape": list(case.shape),
        "origin": case.origin,
        "dtype": dtype_name,
        "values": values,
        "kernel": kernels.choose_kernel(x.device, x.dtype, n).name,
        "exact": exact,
        "times": times,
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default_device())
    parser.add_argument("--budget", type=float, default=None, help="seconds per measurement; default: 2 (CPU), 0.2 (GPU)")
    parser.add_argument("--cases", default="", help="run only cases whose name contains this text")
    options = parser.parse_args()
    budget = options.budget or (2.0 if options.device == "cpu" else 0.2)
    record = {"environment": environment(options.device), "rows": []}
    for case in CASES:
        if options.device not in case.where or options.cases not in case.name:
            continue
        for dtype in DTYPES:
            if options.device == "cpu" and dtype != "float32":
                continue
            for values in case.values:
                print(f"{case.name} {case.shape} {dtype} {values}...", file=sys.stderr, flush=True)
                record["rows"].append(run_case(case, dtype, options.device, values, budget))
                # after every row, so that an interrupted benchmark keeps its finished rows
                write_record(record, options.out, f"{options.device}.json")
    print(report(record))


if __name__ == "__main__":
    main()
