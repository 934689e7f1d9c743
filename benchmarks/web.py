"""Send many requests to the web app on this machine and write a record: failures, latency, and growth of memory.

    python benchmarks/web.py [--requests 200] [--clients 8] [--out FILE]

The app runs in a process of its own, as `efdm app` starts it. Every request uploads a photo and downloads the result; photos
and styles alternate. Memory is the resident memory of the process; its growth is counted from the 50th request on, when
kernels are compiled and the styles are prepared. The script fails if a request fails or the growth exceeds 100 MiB.
"""

import importlib.metadata
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gradio_client import Client, handle_file
from records import make_parser, write_record

from efdm.data import read_picture, resize_short_side, write_picture
from efdm.data.embedded import PHOTOS, STYLES, photos

SIZE, WARM, MAX_GROWTH_MIB = 256, 50, 100
PAD = {"names": [], "x": 0.5, "y": 0.5}


def memory(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text()).group(1)) / 1024  # type: ignore


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    words = [sys.executable, "-m", "efdm", "app", "--device", "cpu"]
    app = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            record = measure(app, app.stdout.readline().split()[0], options.requests, options.clients, Path(folder))  # type: ignore
    finally:
        app.terminate()
        app.communicate()
    write_record(record, options.out, "web.json")
    print(json.dumps(record, indent=1))
    if record["failures"] or record["growth_mib"] >= MAX_GROWTH_MIB:
        sys.exit(1)


def measure(app: subprocess.Popen[str], address: str, requests: int, clients: int, folder: Path) -> dict[str, object]:
    files = [folder / f"{name}.jpg" for name in PHOTOS]
    for file, path in zip(files, photos().values(), strict=True):
        write_picture(file, resize_short_side(read_picture(path).rgb, SIZE))
    pairs = itertools.cycle(itertools.product(files, STYLES))
    local, lock, seconds, failures = threading.local(), threading.Lock(), list[float](), list[str]()
    warm = [0.0]

    def send(pair: tuple[Path, str]) -> None:
        if not hasattr(local, "client"):
            local.client = Client(address, verbose=False, download_files=folder / f"{threading.get_ident()}")
        start = time.perf_counter()
        try:
            photo, style = pair
            answer = local.client.predict(
                content=handle_file(photo), names=[style], files=[], point=PAD, strength=1.0, stroke=1.0,
                preserve_color="none", photoreal="none", size=SIZE, model="small", api_name="/stylize",
            )  # fmt: skip
            if read_picture(answer[1]).rgb.shape != read_picture(photo).rgb.shape:
                raise ValueError(f"a result of another size: {answer[1]}")
        except Exception as error:
            failures.append(str(error))
        with lock:
            seconds.append(time.perf_counter() - start)
            if len(seconds) == min(WARM, requests):
                warm[0] = memory(app.pid)

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(send, itertools.islice(pairs, requests)))
    total = time.perf_counter() - start
    after = memory(app.pid)
    return {
        "gradio": importlib.metadata.version("gradio"), "requests": requests,
        "clients": clients, "size": SIZE, "failures": failures, "requests_per_second": round(requests / total, 2),
        "median_seconds": round(statistics.median(seconds), 3), "max_seconds": round(max(seconds), 3), "warm_requests": WARM,
        "memory_mib": round(after, 1), "growth_mib": round(after - warm[0], 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
