"""Measure style transfer where exact matching is difficult, and write a record and a sheet of pictures.

    python benchmarks/hard_pairs.py [hard-pairs | tolerance] --pictures FOLDER [--vgg FILE] [--out FILE] [--sheet FILE]

"hard-pairs": twelve pairs of flat contents and nearly empty styles. "tolerance": tolerances of the small network on
validation pairs at 256 pixels. ``--pictures`` is a folder with content-val.zip and style-val.zip, held-out photographs and
paintings, and figure-inputs.zip, the pictures of AdaIN's figures. ``--vgg`` has the weights of VGG-16.

LPIPS and style distance are those of `efdm.style.measures`; the committed records were made with an independent
implementation of the same measures. "flat_variance" is the mean variance of the output inside blocks that are flat in the
content. The setting "adain", with the same network, is the reference for it. "wavelength" and "sharpness" describe the size
and the contrast of strokes.
"""

import argparse
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from records import ROOT, make_parser, write_record
from torch import Tensor

from efdm.data import Source, find_pictures, resize_short_side
from efdm.data.images import write_picture
from efdm.data.sheets import sheet
from efdm.style import Stylizer
from efdm.style.color import luminance
from efdm.style.measures import Metrics, edges, load_metrics
from efdm.style.pictures import open_picture

BLOCK = 32  # side of a block in pixels
FLAT = 3 / 255  # standard deviation of every channel below which a block counts as flat
MEASURES = ("content_lpips", "style_distance", "flat_variance", "wavelength", "sharpness")

# (name, content, style); pictures are archive/stem
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


TOLERANCES: dict[str, dict[str, Any]] = {
    "adain": {"method": "adain", "strength": 1.0},
    **{f"{tolerance:g}": {"strength": 1.0, "tolerance": tolerance} for tolerance in (0.0, 0.05, 0.1, 0.2, 0.3)},
}


def validation_pairs(folder: Path, count: int = 16) -> list[tuple[str, str, str]]:
    """Return pairs of content i and style i in sorted order."""
    archives = ("content-val", "style-val")
    names = [[f"{a}/{Path(source.name).name}" for source in pictures(folder, a)[:count]] for a in archives]
    return [(str(i), content, style) for i, (content, style) in enumerate(zip(*names, strict=True))]


def pictures(folder: Path, archive: str) -> list[Source]:
    return find_pictures(folder / f"{archive}.zip")


class Study(NamedTuple):
    pairs: Callable[[Path], list[tuple[str, str, str]]]
    settings: Mapping[str, Mapping[str, Any]]
    side: int  # short side at which outputs are measured
    size: int | None = None  # short side of the pictures; None: their own


STUDIES = {
    "hard-pairs": Study(lambda _: list(PAIRS), SETTINGS, side=384),
    "tolerance": Study(validation_pairs, TOLERANCES, side=256, size=256),
}


def logo() -> Image.Image:
    """Draw a plain logo on white."""
    image = Image.new("RGB", (640, 480), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((140, 60, 500, 420), fill=(24, 78, 160))
    draw.polygon([(320, 120), (430, 340), (210, 340)], fill=(250, 200, 40))
    draw.rectangle((60, 440, 580, 452), fill=(24, 78, 160))
    return image


def read(folder: Path, name: str, size: int | None = None) -> Tensor:
    """Return a picture ``(3, h, w)`` in [0, 1]. ``name`` is the beginning of its path in an archive."""
    archive, _, start = name.partition("/")
    if name == "logo":
        picture = open_picture(logo()).rgb
    else:
        picture = next(p for p in pictures(folder, archive) if Path(p.name).name.startswith(start)).read().rgb
    return picture if size is None else resize_short_side(picture, size)


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


def measured(
    metrics: Metrics, side: int, content: Tensor, style: Tensor, outputs: Iterable[Tensor]
) -> Iterator[dict[str, Any]]:
    """Yield the measures of each output. LPIPS and style distance are measured at a short side of ``side`` pixels."""
    before, after = (metrics.extract(resize_short_side(x, side)[None]) for x in (content, style))
    for output in outputs:
        found = metrics.measure(metrics.extract(resize_short_side(output, side)[None]), before, after)
        yield {
            "content_lpips": round(found["lpips"].item(), 4), "style_distance": round(found["style_distance"].item(), 4),
            "flat_variance": flat_variance(content, output), **strokes(output),
        }  # fmt: skip


def make_picture_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the command line of a benchmark that measures held-out pictures."""
    parser = make_parser(description)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--vgg", type=Path)
    return parser


def main() -> None:
    parser = make_picture_parser(__doc__)
    parser.add_argument("study", choices=tuple(STUDIES), default="hard-pairs", nargs="?")
    parser.add_argument("--sheet", type=Path, default=ROOT / "build" / "hard-pairs.jpg")  # not committed
    options = parser.parse_args()
    study = STUDIES[options.study]
    stylizer, metrics = Stylizer.from_pretrained("small", "cpu"), load_metrics(vgg=options.vgg)
    rows, shown, names = [], [], study.pairs(options.pictures)
    for name, content_name, style_name in names:
        content, style = (read(options.pictures, picture, study.size) for picture in (content_name, style_name))
        outputs = [stylizer.stylize(content, style, **arguments) for arguments in study.settings.values()]
        shown.append([content, style, *outputs])
        for setting, found in zip(study.settings, measured(metrics, study.side, content, style, outputs), strict=True):
            rows.append({"pair": name, "setting": setting, **found})
            print(rows[-1], flush=True)
    means: dict[str, dict[str, float]] = {}
    for setting in study.settings:
        of_setting = [row for row in rows if row["setting"] == setting]
        values = {key: [row[key] for row in of_setting if row[key] is not None] for key in MEASURES}
        means[setting] = {key: round(statistics.fmean(found), 5) for key, found in values.items()}
        print(setting, means[setting])
    record = {
        "metrics": f"efdm.style.measures at {study.side} pixels", "network": "small",
        "pairs": [list(pair) for pair in names], "settings": study.settings, "means": means, "rows": rows,
    }  # fmt: skip
    write_record(record, options.out, f"{options.study}.json")
    labels = ["content", "style", *study.settings]
    options.sheet.parent.mkdir(parents=True, exist_ok=True)
    write_picture(options.sheet, sheet(shown, row_labels=[pair[0] for pair in names], column_labels=labels, cell=(200, 280)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
