"""Measure style transfer on twelve hard pairs, flat contents and nearly empty styles, and write a record and a sheet.

    python benchmarks/hard_pairs.py [--setting NAME ...] [--out FILE]

Content LPIPS and style distance come from the independent judge in ../shared/judge, without which the script does not run.
"flat_variance" is the variance of the output inside regions that are flat in the content, averaged over channels and over
the pixels of all such regions. The setting "adain" uses the same network and is the reference for it.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import io
import json
import statistics
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from scipy import ndimage
from torch import Tensor

from efdm.data.images import write_picture
from efdm.data.sheets import sheet
from efdm.environment import environment
from efdm.style import Stylizer
from efdm.style.measures import HEADS

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared"
FLAT = 3 / 255  # standard deviation inside a window below which its centre counts as flat
WINDOW = 15  # pixels
LEAST_REGION = 0.01  # share of the picture below which a flat region is ignored
JUDGED_AT = 384  # short side, as in the judge

# (name, content, style); pictures are archive/stem in ../shared/data
PAIRS = (
    ("night sky", "content-val/3064097919_e536ab9693", "style-val/aristarkh-lentulov"),
    ("logo", "logo", "style-val/david-burliuk"),
    ("portrait", "figure-inputs/brad_pitt", "figure-inputs/la_muse"),
    ("blue sky", "content-val/3295024992", "style-val/paul-du-toit_cosmic"),
    ("mist", "content-val/3585487286", "style-val/pavel-filonov"),
    ("dark room", "content-val/3643684616", "style-val/robert-indiana"),
    ("sea and sky", "figure-inputs/sailboat", "figure-inputs/brushstrokes"),
    ("night snow", "content-val/3235542079", "figure-inputs/contrast_of_forms"),
    ("empty canvas", "content-val/753285176", "figure-inputs/impronte_d_artista"),
    ("faint drawing", "content-val/3559781965", "style-val/nicholas-roerich_gur"),
    ("pencil study", "content-val/3399843227", "style-val/hans-holbein"),
    ("lines on black", "figure-inputs/golden_gate", "figure-inputs/en_campo_gris"),
)

# name -> arguments of `Stylizer.stylize`
SETTINGS: dict[str, dict[str, Any]] = {
    "adain": {"method": "adain", "strength": 1.0},
    "exact": {"strength": 1.0},
    "default": {},
}


def logo() -> Image.Image:
    """Draw a plain logo on white."""
    image = Image.new("RGB", (640, 480), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((140, 60, 500, 420), fill=(24, 78, 160))
    draw.polygon([(320, 120), (430, 340), (210, 340)], fill=(250, 200, 40))
    draw.rectangle((60, 440, 580, 452), fill=(24, 78, 160))
    return image


def read(name: str) -> Tensor:
    """Return a picture ``(3, h, w)`` in [0, 1]. ``name`` is the beginning of its path in an archive."""
    if name == "logo":
        image = logo()
    else:
        archive, _, stem = name.partition("/")
        with zipfile.ZipFile(SHARED / "data" / f"{archive}.zip") as file:
            found = next(n for n in sorted(file.namelist()) if Path(n).name.startswith(stem))
            image = Image.open(io.BytesIO(file.read(found))).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def flat_regions(content: Tensor) -> Tensor:
    """Return the number of the flat region of every pixel, ``(h, w)``; 0 is outside."""

    def local(x: Tensor) -> Tensor:
        return F.avg_pool2d(F.pad(x[None], (WINDOW // 2,) * 4, mode="replicate"), WINDOW, stride=1)[0]

    variance = (local(content.double().square()) - local(content.double()).square()).amax(0)
    labels, count = ndimage.label((variance < FLAT**2).numpy())
    small = [i for i in range(1, count + 1) if (labels == i).sum() < LEAST_REGION * labels.size]
    return torch.from_numpy(np.where(np.isin(labels, small), 0, labels))


def flat_variance(output: Tensor, regions: Tensor) -> float | None:
    """Return the variance of the output inside the regions, or None without regions."""
    parts = [output[:, regions == i] for i in regions.unique().tolist() if i]
    total = sum(part.shape[1] for part in parts)
    return sum(part.var(1).mean().item() * part.shape[1] for part in parts) / total if parts else None


def load_judge() -> Any:
    spec = importlib.util.spec_from_file_location("eval_style", SHARED / "judge" / "eval_style.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lpips = importlib.util.find_spec("lpips")
    assert lpips is not None and lpips.origin is not None
    judge = module.Judge(SHARED / "weights", Path(lpips.origin).parent / "weights" / "v0.1" / HEADS["vgg16"])
    judge.features = functools.lru_cache(maxsize=4)(judge.features)  # those of a content and a style serve all settings
    judge.tensor = lambda x: module.tensor(Image.fromarray(x.mul(255).round().byte().permute(1, 2, 0).numpy()), JUDGED_AT)
    return judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "hard-pairs.json")
    options = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the pictures and the judge are missing: {SHARED} not found")
    stylizer, judge = Stylizer.from_pretrained("small", "cpu"), load_judge()
    rows, pictures = [], []
    for name, content_name, style_name in PAIRS:
        content, style = read(content_name), read(style_name)
        regions, a, c = flat_regions(content), judge.tensor(content), judge.tensor(style)
        pictures.append([content, style])
        for setting in options.setting:
            start = time.perf_counter()
            output = stylizer.stylize(content, style, **SETTINGS[setting])
            seconds = time.perf_counter() - start
            b = judge.tensor(output)
            rows.append({
                "pair": name, "setting": setting, "content_lpips": round(judge.lpips(a, b), 4),
                "style_distance": round(judge.style(b, c), 4), "flat_variance": flat_variance(output, regions),
                "flat_share": round((regions > 0).double().mean().item(), 3), "seconds": round(seconds, 3),
            })  # fmt: skip
            pictures[-1].append(output)
            print(rows[-1], flush=True)
    means = {}
    for setting in options.setting:
        found = [row for row in rows if row["setting"] == setting]
        columns = {key: [row[key] for row in found if row[key] is not None] for key in ("content_lpips", "style_distance")}
        means[setting] = {key: round(statistics.fmean(values), 4) for key, values in columns.items()}
        means[setting]["flat_variance"] = statistics.fmean(r["flat_variance"] for r in found if r["flat_variance"] is not None)
        print(setting, means[setting])
    record = {
        "environment": environment("cpu"), "pairs": [list(pair) for pair in PAIRS],
        "settings": {name: SETTINGS[name] for name in options.setting}, "means": means, "rows": rows,
    }  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    made = sheet(
        pictures, row_labels=[pair[0] for pair in PAIRS], column_labels=["content", "style", *options.setting], cell=(200, 280)
    )
    write_picture(options.out.with_suffix(".jpg"), made)


if __name__ == "__main__":
    main()
