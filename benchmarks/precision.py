"""Compare float32 and bfloat16 in style transfer on a CPU: quality and the speed of a folder; and write a record.

    python benchmarks/precision.py [--pairs N] [--out FILE]

Quality is measured on held-out pairs at 384 pixels, speed on a folder of 48 pictures of 512 x 512 in the style "starry",
from reading JPEG to writing PNG. The pictures and the weights of VGG-16 are in ../shared.
"""

import statistics
import tempfile
import time
from pathlib import Path

from hard_pairs import VGG16, read, validation_pairs
from records import make_parser, write_record

from efdm.data import read_picture, resize, resize_short_side, write_picture
from efdm.data.embedded import photos
from efdm.style import Stylizer
from efdm.style.jobs import stylize_files
from efdm.style.measures import load_metrics
from efdm.style.plan import plan_files

SIDE, COUNT, ROUNDS = 512, 48, 5


def quality(stylizer: Stylizer, pairs: int) -> dict[str, float]:
    """Return content LPIPS and style distance at strength 1."""
    metrics, found = load_metrics(vgg=VGG16), []
    for _, *names in validation_pairs(pairs):
        content, style = (read(name) for name in names)
        pictures = (stylizer.stylize(content, style, strength=1.0), content, style)
        found.append(metrics.measure(*(metrics.extract(resize_short_side(each, 384)[None]) for each in pictures)))
    return {name: round(statistics.fmean(f[name].item() for f in found), 5) for name in ("lpips", "style_distance")}


def speeds(stylizers: dict[str, Stylizer], folder: Path) -> dict[str, float]:
    """Return the median pictures per second of each stylizer, measured in turns."""
    sources = [resize(read_picture(path).rgb, (SIDE, SIDE)) for path in photos().values()]
    for i in range(COUNT):
        write_picture(folder / f"in/{i:03}.jpg", sources[i % len(sources)].roll(i, -1))
    times: dict[str, list[float]] = {name: [] for name in stylizers}
    for _ in range(ROUNDS + 1):
        for name, stylizer in stylizers.items():
            start = time.perf_counter()
            assert stylize_files(plan_files(folder / "in", ["starry"], folder / name), stylizer).done == COUNT
            times[name].append(time.perf_counter() - start)
    return {name: round(COUNT / statistics.median(found[1:]), 2) for name, found in times.items()}  # the first compiles


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    stylizers = {name: Stylizer.from_pretrained("small", "cpu", precision=name) for name in ("fp32", "bf16")}
    with tempfile.TemporaryDirectory() as place:
        found = speeds(stylizers, Path(place))
    rows = [
        {"precision": name, "pictures_per_second": found[name], **quality(each, options.pairs)}
        for name, each in stylizers.items()
    ]
    print(*rows, sep="\n")
    write_record({"network": "small", "side": SIDE, "pairs": options.pairs, "rows": rows}, options.out, "precision-cpu.json")
