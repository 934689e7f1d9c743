"""Measure the CPU time of a 512 x 512 picture in a job (read a JPEG, stylize it, encode a PNG) and write a record.

    OMP_NUM_THREADS=1 python benchmarks/bulk.py [--out FILE]

Times are CPU seconds of one thread, which depend little on other programs on the machine. The last row is a whole job of the
plain engine.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from records import make_parser, write_record

from efdm.data import Picture, read_picture, resize, write_picture
from efdm.data.bulk import open_job, run_job
from efdm.data.embedded import photos
from efdm.data.images import encode_picture
from efdm.models.weights import pretrained
from efdm.style.jobs import stylize_process
from efdm.style.options import StylizeOptions
from efdm.style.plan import find_styles, make_looks

SIDE, COUNT = 512, 24


def cpu_seconds(calls: list[Callable[[], object]]) -> float:
    """Return the median CPU time of calls, after one that compiles kernels."""
    calls[0]()
    times = []
    for call in calls:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def write_contents(folder: Path, count: int) -> None:
    """Write ``count`` different pictures of 512 x 512 as JPEG."""
    sources = [resize(read_picture(path).rgb, (SIDE, SIDE)) for path in photos().values()]
    for i in range(count):
        write_picture(folder / f"{i:03}.jpg", sources[i % len(sources)].roll(i, -1))


def measure(folder: Path) -> list[dict[str, object]]:
    write_contents(folder / "in", COUNT)
    files = sorted((folder / "in").iterdir())
    pictures = [read_picture(file) for file in files]
    looks = make_looks(find_styles(["starry"])[0], (), "none", (), ())
    factory = partial(stylize_process, pretrained("small"), looks, StylizeOptions(), "fp32")
    process = factory("cpu")
    made: list[Picture] = [result for picture in pictures for result in process(picture).values()]
    stages = {
        "read": cpu_seconds([lambda file=file: read_picture(file) for file in files]),
        "stylize": cpu_seconds([lambda picture=picture: process(picture) for picture in pictures]),
        "encode": cpu_seconds([lambda picture=picture: encode_picture("x.png", picture.rgb) for picture in made]),
    }
    size = statistics.mean(len(encode_picture("x.png", picture.rgb)) for picture in made)
    job = open_job(folder / "in", folder / "out", {}, "shards")
    start = time.process_time()
    assert run_job(job, lambda device: process).done == COUNT
    stages["job"] = (time.process_time() - start) / COUNT
    rows: list[dict[str, object]] = [{"stage": name, "cpu_seconds": round(seconds, 5)} for name, seconds in stages.items()]
    read = statistics.mean(file.stat().st_size for file in files)
    return [*rows, {"stage": "bytes", "read": round(read), "written": round(size)}]


if __name__ == "__main__":
    options = make_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    print(*rows, sep="\n")
    write_record({"side": SIDE, "rows": rows}, options.out, "bulk-cpu.json")
