"""Measure style transfer on twelve hard pairs, flat contents and nearly empty styles, and write a record and a sheet.

    python benchmarks/hard_pairs.py [--setting NAME ...] [--out FILE] [--sheet FILE]

Content LPIPS and style distance come from the independent judge in ../shared/judge, without which the script does not run.
"flat_variance" is the mean variance of the output inside blocks that are flat in the content. The setting "adain", with the
same network, is the reference for it. "wavelength" and "sharpness" describe the size and the contrast of strokes.
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
from torch import Tensor

from efdm.data.images import write_picture
from efdm.data.sheets import sheet
from efdm.environment import environment
from efdm.style import Stylizer
from efdm.style.color import luminance
from efdm.style.measures import HEADS, edges

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared"
BLOCK = 32  # side of a block in pixels
FLAT = 3 / 255  # standard deviation of every channel below which a block counts as flat
MEASURES = ("content_lpips", "style_distance", "flat_variance", "wavelength", "sharpness")
SIDE = 384  # short side at which pictures are judged; the default of the judge

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
    "exact": {"strength": 1.0, "tolerance": 0.0},
    "default": {},
    "stroke 2": {"stroke": 2.0},
    "size 192": {"size": 192},
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


def blocks(picture: Tensor) -> Tensor:
    """Return the square blocks of a picture, ``(n, 3, BLOCK * BLOCK)``."""
    return F.unfold(picture[None], BLOCK, stride=BLOCK)[0].view(3, BLOCK * BLOCK, -1).permute(2, 0, 1)


def flat_variance(content: Tensor, output: Tensor) -> float | None:
    """Return the variance of the output inside the blocks that are flat in the content, or None without such blocks."""
    flat = (blocks(content).std(-1) < FLAT).all(1)
    return blocks(output)[flat].var(-1).mean().item() if flat.any() else None


def strokes(output: Tensor) -> dict[str, float]:
    """Return the mean wavelength of the luminance, up to 64 pixels, and the 99th percentile of its Sobel magnitude."""
    grey = luminance(output)
    power = torch.fft.rfft2(grey[0]).abs().square()
    down, across = torch.fft.fftfreq(grey.shape[1])[:, None], torch.fft.rfftfreq(grey.shape[2])[None]
    frequencies = (down.square() + across.square()).sqrt()
    power = torch.where(frequencies > 1 / 64, power, 0)  # larger waves belong to the layout
    return {
        "wavelength": round((power.sum() / (power * frequencies).sum()).item(), 3),
        "sharpness": round(edges(output[None]).flatten().quantile(0.99).item(), 4),
    }


def load_judge(side: int = SIDE) -> Any:
    """Return the judge in ../shared/judge. Its method `tensor` takes a picture ``(3, h, w)`` and resizes its short side."""
    spec = importlib.util.spec_from_file_location("eval_style", SHARED / "judge" / "eval_style.py")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lpips = importlib.util.find_spec("lpips")
    judge = module.Judge(SHARED / "weights", Path(lpips.origin).parent / "weights" / "v0.1" / HEADS["vgg16"])
    judge.features = functools.lru_cache(maxsize=4)(judge.features)  # a content and a style are the same for all settings
    judge.tensor = lambda x: module.tensor(Image.fromarray(x.mul(255).round().byte().permute(1, 2, 0).numpy()), side)
    return judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "hard-pairs.json")
    parser.add_argument("--sheet", type=Path, default=HERE.parent / "build" / "hard-pairs.jpg")  # not committed
    options = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the pictures and the judge are missing: {SHARED} not found")
    stylizer, judge = Stylizer.from_pretrained("small", "cpu"), load_judge()
    rows, pictures = [], []
    for name, content_name, style_name in PAIRS:
        content, style = read(content_name), read(style_name)
        a, c = judge.tensor(content), judge.tensor(style)
        pictures.append([content, style])
        for setting in options.setting:
            start = time.perf_counter()
            output = stylizer.stylize(content, style, **SETTINGS[setting])
            seconds = time.perf_counter() - start
            b = judge.tensor(output)
            rows.append({
                "pair": name, "setting": setting, "content_lpips": round(judge.lpips(a, b), 4),
                "style_distance": round(judge.style(b, c), 4), "flat_variance": flat_variance(content, output),
                **strokes(output), "seconds": round(seconds, 3),
            })  # fmt: skip
            pictures[-1].append(output)
            print(rows[-1], flush=True)
    means = {}
    for setting in options.setting:
        found = [row for row in rows if row["setting"] == setting]
        measured = {key: [row[key] for row in found if row[key] is not None] for key in MEASURES}
        means[setting] = {key: round(statistics.fmean(values), 5) for key, values in measured.items()}
        print(setting, means[setting])
    record = {
        "environment": environment("cpu"), "pairs": [list(pair) for pair in PAIRS],
        "settings": {name: SETTINGS[name] for name in options.setting}, "means": means, "rows": rows,
    }  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    labels = ["content", "style", *options.setting]
    made = sheet(pictures, row_labels=[pair[0] for pair in PAIRS], column_labels=labels, cell=(200, 280))
    options.sheet.parent.mkdir(parents=True, exist_ok=True)
    write_picture(options.sheet, made)


if __name__ == "__main__":
    main()
