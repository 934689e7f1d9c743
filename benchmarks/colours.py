"""Compare colour matching with scikit-image and packages from PyPI on embedded pictures, and write a record.

    python benchmarks/colours.py [--device cuda] [--threads 2] [--out FILE]

Distances are 1-Wasserstein distances in levels of 255, averaged over pairs of pictures: "channels" between the histograms
of the red, green and blue channel, "joint" between projections on random directions of colour space. "seconds" is the
shortest of several runs, and "cpu_seconds" the time that threads were busy, which depends less on other programs. Packages
that are not installed are skipped (pip install scikit-image color-matcher colortrans python-color-transfer SimpleITK); on a
GPU only our rows are measured.
"""

import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from records import make_parser, write_record

from efdm.data.embedded import photos, styles
from efdm.style import match_picture

PAIRS = (
    ("astronaut", "coffee"), ("coffee", "rocket"), ("rocket", "cat"), ("cat", "starry"), ("hopper", "lilies"),
    ("coffee", "autumn"),
)  # fmt: skip
TIMED, SIZE = ("rocket", "coffee"), (1024, 768)  # width and height
DIRECTIONS, REPEATS = 24, 9


class Row(NamedTuple):
    """A function that matches a content to a reference, both uint8 ``(h, w, 3)``, and the package that it needs."""

    package: str
    function: Callable[[Any, Any], Any]


def sitk_match(x: Any, y: Any) -> Any:
    import SimpleITK as sitk

    channels = []
    for channel in range(3):
        a, b = (sitk.GetImageFromArray(each[..., channel]) for each in (x, y))
        made = sitk.HistogramMatching(
            a, b, numberOfHistogramLevels=256, numberOfMatchPoints=255, thresholdAtMeanIntensity=False
        )
        channels.append(sitk.GetArrayFromImage(made))
    return np.stack(channels, -1)


def skimage_match(x: Any, y: Any) -> Any:
    from skimage.exposure import match_histograms

    return match_histograms(x, y, channel_axis=-1)


def color_matcher(method: str) -> Callable[[Any, Any], Any]:
    def match(x: Any, y: Any) -> Any:
        from color_matcher import ColorMatcher

        return ColorMatcher().transfer(src=x, ref=y, method=method)

    return match


def lhm(x: Any, y: Any) -> Any:
    import colortrans

    return colortrans.transfer_lhm(x, y)


def pdf_transfer(x: Any, y: Any) -> Any:
    from python_color_transfer.color_transfer import ColorTransfer

    return ColorTransfer().pdf_transfer(img_arr_in=x, img_arr_ref=y, regrain=False)


def rows(device: str) -> dict[str, Row]:
    mine: dict[str, dict[str, Any]] = {
        "efdm": {}, "efdm, ties by position": {"ties": "position"}, "efdm, lab": {"space": "lab"},
        "efdm, joint": {"method": "joint"},
    }  # fmt: skip
    found = {name: Row("efdm", partial(match_picture, device=device, **options)) for name, options in mine.items()}
    if device != "cpu":
        return found
    return found | {
        "scikit-image match_histograms": Row("scikit-image", skimage_match),
        "SimpleITK HistogramMatching": Row("SimpleITK", sitk_match),
        **{f"color-matcher {m}": Row("color-matcher", color_matcher(m)) for m in ("hm", "mkl", "hm-mkl-hm")},
        "colortrans lhm": Row("colortrans", lhm),
        "python-color-transfer pdf": Row("python-color-transfer", pdf_transfer),
    }


def read(name: str, size: tuple[int, int] | None = None) -> Any:
    picture = Image.open({**photos(), **styles()}[name]).convert("RGB")
    return np.array(picture if size is None else picture.resize(size))


def to_uint8(made: Any) -> Any:
    return np.clip(np.rint(np.asarray(made, np.float64)), 0, 255).astype(np.uint8)


def channel_distance(made: Any, reference: Any) -> float:
    """Return the mean 1-Wasserstein distance between the histograms of the channels."""
    shares = []
    for picture in (made, reference):
        counts = np.stack([np.bincount(picture[..., c].ravel(), minlength=256) for c in range(3)])
        shares.append(counts.cumsum(1) / picture[..., 0].size)
    return float(np.abs(shares[0] - shares[1]).sum(1).mean())


def joint_distance(made: Any, reference: Any) -> float:
    """Return the mean 1-Wasserstein distance along random directions, at 4096 quantiles."""
    axes = torch.randn(DIRECTIONS, 3, generator=torch.Generator().manual_seed(0))
    axes /= axes.norm(dim=1, keepdim=True)
    ordered = []
    for picture in (made, reference):
        along = (axes @ torch.from_numpy(picture.reshape(-1, 3)).float().T).sort(1).values
        ordered.append(along[:, ((torch.arange(4096) + 0.5) / 4096 * along.shape[1]).long()])
    return float((ordered[0] - ordered[1]).abs().mean())


def averaged(distances: Iterable[tuple[float, float]]) -> dict[str, float]:
    channels, joint = (round(statistics.fmean(each), 4) for each in zip(*distances, strict=True))
    return {"channels": channels, "joint": joint}


def measure(row: Row, device: str) -> dict[str, float]:
    distances = []
    for content, reference in PAIRS:
        x, y = read(content), read(reference)
        made = to_uint8(row.function(x, y))
        distances.append((channel_distance(made, y), joint_distance(made, y)))
    x, y = (read(name, SIZE) for name in TIMED)
    row.function(x[:64], y[:64])
    times, used = [], []
    for _ in range(REPEATS):
        start, before = time.perf_counter(), time.process_time()
        row.function(x, y)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        used.append(time.process_time() - before)
    return {**averaged(distances), "seconds": round(min(times), 4), "cpu_seconds": round(min(used), 4)}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device).type
    found, versions = [], {}
    unchanged = ((channel_distance(x, y), joint_distance(x, y)) for x, y in ((read(a), read(b)) for a, b in PAIRS))
    found.append({"name": "unchanged content", "package": "", **averaged(unchanged)})
    for name, row in rows(options.device).items():
        try:
            versions[row.package] = importlib.metadata.version(row.package)
        except importlib.metadata.PackageNotFoundError:
            if row.package != "efdm":
                print(f"{name}: {row.package} is not installed")
                continue
        found.append({"name": name, "package": row.package, **measure(row, device)})
        print(found[-1], flush=True)
    record = {
        "packages": versions, "pairs": [list(pair) for pair in PAIRS],
        "timed": {"pictures": list(TIMED), "size": list(SIZE), "repeats": REPEATS}, "rows": found,
    }  # fmt: skip
    write_record(record, options.out, f"colours-{device}.json", options.device)


if __name__ == "__main__":
    main()
