"""Time style transfer of whole images (encode, match, decode) at 512 x 512 and write a record.

    python benchmarks/pictures.py [--device cpu|cuda] [--side N] [--rounds N] [--out FILE]

Each network is timed in three ways, the field "style" of a row. "look": `Stylizer.stylize`, the public call, with a prepared
look and contents on the device. "prepared" and "encoded": the network alone (`transfer`), with prepared features as in a
gallery or a video, or with a style to encode for every image. On a GPU these two replay a CUDA graph with fixed inputs.

The methods alternate within one run, so that their ratios do not depend on the state of the machine. Weights are random
because they do not affect the time. On a GPU the network runs in bfloat16, cuDNN searches for the fastest algorithms, and
the device is synchronized around every ten calls.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from records import make_parser, write_record
from torch import Tensor

from efdm import prepare
from efdm.models import build
from efdm.style.pipeline import transfer
from efdm.style.replay import Captured
from efdm.style.stylizer import Stylizer
from efdm.training.device import default_device

METHODS = ("efdm", "adain")
BATCHES = {"cpu": (1,), "cuda": (1, 8)}
ROUNDS = {"cpu": 11, "cuda": 51}
CALLS = {"cpu": 1, "cuda": 10}  # in a round


def passes(network_name: str, method: str, batch: int, side: int, device: str) -> dict[str, Callable[[], object]]:
    """Return the functions to time, without arguments."""
    precision = "fp32" if device == "cpu" else "bf16"
    stylizer = Stylizer(build(network_name), device, precision=precision)
    network, contents = stylizer.network, torch.rand(batch, 3, side, side, device=device)
    look = stylizer.prepare(torch.rand(3, side, side))
    content, style = (torch.rand_like(contents).to(stylizer.dtype, memory_format=torch.channels_last) for _ in range(2))
    prepared = [prepare(f) for f in network.features(style)]
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "prepared": lambda x: transfer(network, x, prepared, method=method),
        "encoded": lambda x: transfer(network, x, network.features(style), method=method),
    }
    return {
        "look": lambda: stylizer.stylize(contents, look, method=method),
        **{name: graphed(call, content) if device == "cuda" else partial(call, content) for name, call in calls.items()},
    }


def graphed(call: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    captured = Captured(call, x)
    return lambda: captured.graph.replay()


def seconds(call: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    for _ in range(CALLS[device]):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS[device]


@torch.inference_mode()
def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=tuple(BATCHES), default=default_device())
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    device = options.device
    if device == "cuda":
        torch.backends.cudnn.benchmark = True
    rows = []
    for network in ("small", "vgg16"):
        for batch in BATCHES[device]:
            calls = {(m, style): c for m in METHODS for style, c in passes(network, m, batch, options.side, device).items()}
            times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
            for _ in range(3):  # the second call of `stylize` captures a graph
                for call in calls.values():
                    seconds(call, device)
            for _ in range(options.rounds or ROUNDS[device]):
                for key, call in calls.items():
                    times[key].append(seconds(call, device))
            for (method, style), found in times.items():
                low, middle, high = statistics.quantiles(found, n=4)
                rows.append({
                    "network": network, "batch": batch, "method": method, "style": style, "side": options.side,
                    "seconds": round(middle, 6), "spread": round((high - low) / 2, 6),
                    "pictures_per_second": round(batch / middle, 2),
                })  # fmt: skip
                speed = f"{middle * 1e3:8.2f} ms  {batch / middle:8.1f}/s"
                print(f"{network:6} batch {batch} {method:6} {style:9} {speed}", flush=True)
    write_record({"rows": rows}, options.out, f"pictures-{device}.json", device)


if __name__ == "__main__":
    main()
