"""Measure tolerances of the small network on validation pairs and write a record.

    python benchmarks/tolerance.py [--pairs N] [--out FILE]

Pictures are stylized and measured at a short side of 256 pixels, with the measures of `hard_pairs.py`: content LPIPS and
style distance by the independent judge in ../shared/judge, and the variance of the output inside blocks that are flat in the
content. The setting "adain" uses the same network.
"""

from __future__ import annotations

import argparse
import json
import statistics
import zipfile
from pathlib import Path
from typing import Any

import torch
from hard_pairs import SHARED, flat_variance, load_judge, read

from efdm.data import resize_short_side
from efdm.environment import environment
from efdm.style import Stylizer

HERE = Path(__file__).parent
SIDE = 256  # short side of all pictures
SETTINGS: dict[str, dict[str, Any]] = {
    "adain": {"method": "adain"}, **{f"{t:g}": {"tolerance": t} for t in (0.0, 0.05, 0.1, 0.2, 0.3)}
}  # fmt: skip
MEASURES = ("content_lpips", "style_distance", "flat_variance")


def validation_pairs(count: int) -> list[tuple[str, ...]]:
    """Return pairs of content i and style i in sorted order."""
    names = []
    for archive in ("content-val", "style-val"):
        with zipfile.ZipFile(SHARED / "data" / f"{archive}.zip") as file:
            names.append([f"{archive}/{Path(name).name}" for name in sorted(file.namelist())])
    return list(zip(*names, strict=True))[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "tolerance.json")
    options = parser.parse_args()
    stylizer, judge = Stylizer.from_pretrained("small", "cpu"), load_judge(SIDE)
    found: dict[str, list[tuple[float | None, ...]]] = {setting: [] for setting in SETTINGS}
    for names in validation_pairs(options.pairs):
        content, style = (resize_short_side(read(name), SIDE) for name in names)
        look, a, c = stylizer.prepare(style), judge.tensor(content), judge.tensor(style)
        for setting, arguments in SETTINGS.items():
            output = stylizer.stylize(content, look, strength=1.0, **arguments)
            b = judge.tensor(output)
            found[setting].append((judge.lpips(a, b), judge.style(b, c), flat_variance(content, output)))
            print(*names, setting, found[setting][-1], flush=True)
    means = {
        setting: {
            measure: round(statistics.fmean(v for v in values if v is not None), 5)  # None: no block is flat
            for measure, values in zip(MEASURES, zip(*rows, strict=True), strict=True)
        }
        for setting, rows in found.items()
    }
    record = {
        "environment": environment("cpu"), "network": stylizer.network.name, "pairs": options.pairs, "side": SIDE,
        "settings": SETTINGS, "means": means,
    }  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
