"""Compare float32 and bfloat16 in style transfer on a CPU: quality and the speed of a folder; and write a record.

    python benchmarks/precision.py --pictures FOLDER [--vgg FILE] [--pairs N] [--out FILE]

Quality is measured on held-out pairs at 384 pixels, speed on a folder of 48 pictures of 512 x 512 in the style "starry",
from reading JPEG to writing PNG. ``--pictures`` and ``--vgg`` are those of hard_pairs.py.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bulk import SIDE, write_contents
from hard_pairs import make_picture_parser, measured, read, validation_pairs
from records import write_record

from efdm.style import Stylizer
from efdm.style.jobs import stylize_files
from efdm.style.measures import load_metrics
from efdm.style.plan import plan_files

COUNT, ROUNDS = 48, 5
Stylizers = dict[str, Stylizer]  # by precision


def quality(stylizers: Stylizers, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return content LPIPS and style distance of each stylizer at strength 1."""
    metrics, rows = load_metrics(vgg=options.vgg), []
    for _, *names in validation_pairs(options.pictures, options.pairs):
        content, style = (read(options.pictures, name) for name in names)
        outputs = (stylizer.stylize(content, style, strength=1.0) for stylizer in stylizers.values())
        rows.append(dict(zip(stylizers, measured(metrics, 384, content, style, outputs), strict=True)))
    measures = ("content_lpips", "style_distance")
    return {name: {m: round(statistics.fmean(row[name][m] for row in rows), 5) for m in measures} for name in stylizers}


def speed(stylizers: Stylizers, folder: Path) -> dict[str, float]:
    """Return the median pictures per second of each stylizer, measured in turns."""
    write_contents(folder / "in", COUNT)
    times: dict[str, list[float]] = {name: [] for name in stylizers}
    for _ in range(ROUNDS + 1):
        for name, stylizer in stylizers.items():
            start = time.perf_counter()
            assert stylize_files(plan_files(folder / "in", ["starry"], folder / name), stylizer).done == COUNT
            times[name].append(time.perf_counter() - start)
    return {name: round(COUNT / statistics.median(found[1:]), 2) for name, found in times.items()}  # the first compiles


if __name__ == "__main__":
    parser = make_picture_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    stylizers = {name: Stylizer.from_pretrained("small", "cpu", precision=name) for name in ("fp32", "bf16")}
    with tempfile.TemporaryDirectory() as place:
        rates = speed(stylizers, Path(place))
    found = quality(stylizers, options)
    rows = [{"precision": name, "pictures_per_second": rates[name], **found[name]} for name in stylizers]
    print(*rows, sep="\n")
    write_record({"network": "small", "side": SIDE, "pairs": options.pairs, "rows": rows}, options.out, "precision-cpu.json")
