"""Match a file of more than 2^31 values with `efdm match`, check the result value by value, and write a record.

    OMP_NUM_THREADS=1 python benchmarks/large.py [--side 46400] [--folder DIR] [--out FILE]

The content is a gradient with noise, 8 bits, written and read in chunks. The result must have exactly the levels that
the definition assigns to its ranks, and must keep the order of the content. DIR needs space for twice the file. "peak_mib"
includes the parts of both files that the operating system keeps in memory.
"""

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from records import make_parser, write_record

from efdm.data import read_picture
from efdm.data.embedded import photos
from efdm.style import prepare_reference

ROWS = 400  # per chunk that is written or checked


def write_content(path: Path, side: int) -> None:
    pixels = np.lib.format.open_memmap(path, "w+", np.uint8, (side, side))
    rng, across = np.random.default_rng(0), np.arange(side) * 150 // side
    for top in range(0, side, ROWS):
        noise = rng.integers(0, 16, (min(ROWS, side - top), side), np.uint8)
        pixels[top : top + ROWS] = noise + across.astype(np.uint8) + np.uint8(top * 80 // side)


def check(content: Any, made: Any, reference: Any) -> None:
    """Raise AssertionError unless the result has the levels of the reference and the order of the content."""
    joint = np.zeros((256, 256), np.int64)  # levels of the content and of the result
    for top in range(0, len(content), ROWS):
        pairs = content[top : top + ROWS].astype(np.int64) * 256 + made[top : top + ROWS]
        joint += np.bincount(pairs.ravel(), minlength=2**16).reshape(256, 256)
    n, m = content.size, int(reference.sum())
    # rank r gets order statistic floor((r + 1/2) m / n): ranks below this end have a level up to the given one
    ends = [-((m - 2 * n * int(c)) // (2 * m)) for c in reference.cumsum()]
    assert joint.sum(0).cumsum().tolist() == ends, "the levels differ from those of the reference"
    used = [row.nonzero()[0] for row in joint if row.any()]
    assert all(low[-1] <= high[0] for low, high in itertools.pairwise(used)), "the order of the content changed"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--side", type=int, default=46_400)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        content, gray, made = (Path(folder) / f"{name}.npy" for name in ("content", "gray", "made"))
        write_content(content, options.side)
        np.save(gray, (read_picture(photos()["coffee"]).rgb[1] * 255).round().numpy().astype(np.uint8))
        command = [sys.executable, "-m", "efdm", "match", content, "--reference", gray, "-o", made]
        start = time.perf_counter()
        subprocess.run([*map(str, command), "--device", "cpu"], check=True)
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        counts = prepare_reference(gray).counts
        assert counts is not None
        check(np.load(content, "r"), np.load(made, "r"), counts[0].numpy())
    record = {
        "values": options.side**2, "seconds": round(seconds),
        "cpu_seconds": round(used.ru_utime + used.ru_stime), "peak_mib": used.ru_maxrss // 1024,
    }  # fmt: skip
    print(write_record(record, options.out, "large-cpu.json"))


if __name__ == "__main__":
    main()
