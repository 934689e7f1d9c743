"""Time style transfer of whole images (encode, match, decode) at 512 x 512 and write a record.

    python benchmarks/pictures.py [--device cpu|cuda] [--out FILE]

Each network is timed with a "prepared" style, whose sorted features are reused as in a gallery or a video, and with an
"encoded" style, where every image brings its own style. The methods alternate within one run, so that their ratios do not
depend on the state of the machine. Weights are random because they do not affect the time. On a GPU the network runs in
bfloat16 and is replayed as a CUDA graph. The device is synchronised around every measurement.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from efdm import prepare
from efdm.environment import environment
from efdm.models import build
from efdm.style.pipeline import transfer
from efdm.training.device import default_device

HERE = Path(__file__).parent
SIDE = 512
METHODS = ("efdm", "adain")
BATCHES = {"cpu": (1,), "cuda": (1, 8)}
ROUNDS = {"cpu": 11, "cuda": 51}


def passes(network_name: str, method: str, batch: int, device: str) -> dict[str, Callable[[], Tensor]]:
    """Return the functions to time, without arguments, for a prepared and an encoded style."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    network = build(network_name).eval().to(device, dtype).to(memory_format=torch.channels_last)
    content, style = (
        torch.rand(batch, 3, SIDE, SIDE).to(device, dtype).contiguous(memory_format=torch.channels_last) for _ in range(2)
    )
    prepared = [prepare(f) for f in network.features(style)]
    calls = {
        "prepared": lambda: transfer(network, content, prepared, method=method),
        "encoded": lambda: transfer(network, content, network.features(style), method=method),
    }
    return {k: graphed(c) for k, c in calls.items()} if device == "cuda" else calls


def graphed(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()

    def replay(kept: Callable[[], Tensor] = call) -> Tensor:  # keeps the inputs of the graph alive
        graph.replay()
        return output

    return replay


def seconds(call: Callable[[], Tensor], device: str) -> float:
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(BATCHES), default=default_device())
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = options.device
    if device == "cuda":
        torch.backends.cudnn.benchmark = True
    rows = []
    for network in ("small", "vgg16"):
        for batch in BATCHES[device]:
            calls = {(m, style): c for m in METHODS for style, c in passes(network, m, batch, device).items()}
            times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
            for _ in range(2):
                for call in calls.values():
                    seconds(call, device)
            for _ in range(ROUNDS[device]):
                for key, call in calls.items():
                    times[key].append(seconds(call, device))
            for (method, style), found in times.items():
                low, middle, high = statistics.quantiles(found, n=4)
                rows.append({
                    "network": network, "batch": batch, "method": method, "style": style, "side": SIDE,
                    "seconds": round(middle, 6), "spread": round((high - low) / 2, 6),
                    "pictures_per_second": round(batch / middle, 2),
                })  # fmt: skip
                speed = f"{middle * 1e3:8.2f} ms  {batch / middle:8.1f}/s"
                print(f"{network:6} batch {batch} {method:6} {style:9} {speed}", flush=True)
    out = options.out or HERE / "results" / f"pictures-{device}.json"
    out.write_text(json.dumps({"environment": environment(device), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
