"""Draw the figures of the documentation: ``python docs/figures/make.py [FOLDER] [--size PIXELS]``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from efdm import adain, channel_stats, efdm, histogram_match, match_picture
from efdm.data import read_picture, resize, resize_short_side, write_picture
from efdm.data.embedded import photos, read_style, styles
from efdm.data.images import to_uint8
from efdm.data.sheets import sheet
from efdm.models.weights import is_available
from efdm.style import Stylizer
from efdm.style.demo import Studio, contact_sheet

INK, STYLE, MATCHED = "#1b1b1e", "#d1495b", "#00798c"
QUALITY = 72  # of WebP files


def one_channel() -> tuple[torch.Tensor, torch.Tensor]:
    """Return a typical channel: content after a ReLU, and a style with two modes and a long tail."""
    g = torch.Generator().manual_seed(7)
    n = 64 * 64
    content = (torch.randn(n, generator=g) * 0.8 + 0.3).relu()
    low, high = torch.randn(n, generator=g) * 0.25 + 0.4, torch.randn(n, generator=g) * 0.5 + 2.4
    style = torch.where(torch.rand(n, generator=g) < 0.6, low, high) + torch.rand(n, generator=g) ** 8 * 3
    return content.view(1, 1, -1), style.view(1, 1, -1)


def distributions(folder: Path, size: int | None) -> Path:
    """Plot the distribution of one channel before and after three matchers."""
    content, style = one_channel()
    matchers = {"AdaIN": adain, "HM": histogram_match, "EFDM": efdm}
    panels = {"content": content, **{name: match(content, style) for name, match in matchers.items()}}
    edges = torch.linspace(-1.5, 6, 76)
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.7), sharex=True, sharey=True, dpi=110)
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        axis.hist(style.flatten().numpy(), edges.numpy(), density=True, color=STYLE, alpha=0.35, label="style")
        drawn = values.flatten().numpy()
        axis.hist(drawn, edges.numpy(), density=True, histtype="step", color=MATCHED, lw=1.6, label="the channel")
        gap = (values.flatten().sort().values - style.flatten().sort().values).abs().mean().item()
        stats = channel_stats(values)
        axis.set_title(f"{name}: off by {gap:.3f}" if gap else f"{name}: equal, bit for bit", fontsize=10, color=INK)
        axis.text(
            0.97, 0.93, f"mean {stats.mean.item():.2f}\nstd {stats.std.item():.2f}\nskewness {stats.skewness.item():.2f}",
            transform=axis.transAxes, ha="right", va="top", fontsize=8, color=INK,
        )  # fmt: skip
        axis.set_ylim(0, 1.6)
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="lower center", ncols=2, frameon=False, fontsize=9)
    figure.subplots_adjust(left=0.02, right=0.99, top=0.88, bottom=0.2, wspace=0.06)
    out = folder / "distributions.png"
    figure.savefig(out, metadata={"Software": None})
    plt.close(figure)
    return out


def demo(folder: Path, size: int | None) -> Path:
    """Draw the contact sheet of `make demo` at a smaller size."""
    made = contact_sheet(Studio(Stylizer.from_pretrained("small"), size or 256))
    out = folder / "demo.webp"
    write_picture(out, resize(made, (made.shape[1] * 1400 // made.shape[2], 1400)), quality=QUALITY)
    return out


FAILURES = {  # name: (photo, style)
    "smooth areas": ("rocket", "wave"),
    "faces": ("hopper", "mosaic"),
    "large patterns": ("cat", "bauhaus"),
}


def failures(folder: Path, size: int | None) -> Path:
    """Draw the known failures of the small model."""
    stylizer = Stylizer.from_pretrained("small")
    rows = []
    for photo, style in FAILURES.values():
        content, painting = resize_short_side(read_picture(photos()[photo]).rgb, size or 384), read_style(style, size or 384)
        rows.append([content, painting, stylizer.stylize(content, painting)])
    columns = list(map(list, zip(*rows, strict=True)))
    out = folder / "failures.webp"
    write_picture(out, sheet(columns, column_labels=tuple(FAILURES), cell=300), quality=QUALITY)
    return out


def logo(height: int = 384, width: int = 512) -> torch.Tensor:
    """Draw a disk, a triangle and a bar on white."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width) * width / height, indexing="ij")
    bar = (x.abs() < 1.1) & ((y - 0.9).abs() < 0.03)
    triangle = (y < 0.4) & (y > 2 * x.abs() - 0.6)
    shapes = {(0.1, 0.3, 0.63): (x.square() + y.square() < 0.55) | bar, (0.98, 0.78, 0.16): triangle}
    picture = torch.ones(3, height, width)
    for colour, inside in shapes.items():
        picture = torch.where(inside, torch.tensor(colour).view(3, 1, 1), picture)
    return picture


def tolerance(folder: Path, size: int | None) -> Path:
    """Compare exact and tolerant matching on a night sky, a logo and a portrait."""
    stylizer, side = Stylizer.from_pretrained("small"), size or 384
    pictures = {name: read_picture(photos()[name]).rgb for name in ("rocket", "hopper")} | {"logo": logo()}
    rows = []
    for name, style in (("rocket", "wave"), ("logo", "fauve"), ("hopper", "lilies")):
        content, painting = resize_short_side(pictures[name], side), read_style(style, side)
        ways: tuple[dict[str, Any], ...] = ({"tolerance": 0}, {}, {"method": "adain"})
        rows.append([content, painting, *(stylizer.stylize(content, painting, strength=1.0, **way) for way in ways)])
    labels = ("content", "style", "exact", f"tolerance {stylizer.network.tolerance:g}", "AdaIN")
    out = folder / "tolerance.webp"
    write_picture(out, sheet(rows, column_labels=labels, cell=(240, 280)), quality=QUALITY)
    return out


COLOUR_MATCHES: dict[str, dict[str, str]] = {  # column: options
    "rgb": {}, "joint": {"method": "joint"}, "lab": {"space": "lab"}, "luminance": {"space": "luminance"},
}  # fmt: skip


def colours(folder: Path, size: int | None) -> Path:
    """Match the colours of photographs in every space."""
    rows = []
    for content, reference in (("astronaut", "coffee"), ("coffee", "rocket"), ("cat", "lilies")):
        files = {**photos(), **styles()}
        pictures = [to_uint8(resize_short_side(read_picture(files[name]).rgb, size or 320)) for name in (content, reference)]
        made = [match_picture(*pictures, **options) for options in COLOUR_MATCHES.values()]
        rows.append([picture / 255 for picture in (*pictures, *made)])
    out = folder / "colours.webp"
    write_picture(out, sheet(rows, column_labels=("content", "reference", *COLOUR_MATCHES), cell=230), quality=QUALITY)
    return out


def skies(folder: Path, size: int | None) -> Path:
    """Enlarge the sky of a photograph after matches that differ in the order of equal values."""
    content, reference = (to_uint8(read_picture(file).rgb) for file in (photos()["rocket"], styles()["wave"]))
    names = {"smooth": "smooth (default)", "dither": "dither", "position": "position"}
    panels = [match_picture(content, reference, ties=ties) / 255 for ties in names]
    panels.append(histogram_match(content[None].float(), reference[None].float())[0] / 255)
    side = 110
    cropped = [panel[:, 20 : 20 + side, 330 : 330 + side] for panel in panels]
    large = [F.interpolate(each[None], scale_factor=3, mode="nearest")[0] for each in cropped]
    out = folder / "skies.png"
    write_picture(out, sheet([large], column_labels=(*names.values(), "histogram matching"), cell=3 * side))
    return out


def joint(folder: Path, size: int | None) -> Path:
    """Compare separate and joint matching of channels, by the first network whose weights are found."""
    stylizer = Stylizer.from_pretrained(next(name for name in ("vgg19", "vgg16", "small") if is_available(name)))
    methods, rows = ("efdm", "wct", "joint"), []
    for photo, style in (("coffee", "starry"), ("cat", "wave"), ("astronaut", "autumn")):
        content, painting = resize_short_side(read_picture(photos()[photo]).rgb, size or 320), read_style(style, size or 320)
        made = [stylizer.stylize(content, painting, method=method, strength=1.0) for method in methods]
        rows.append([content, painting, *made])
    out = folder / "joint.webp"
    write_picture(out, sheet(rows, column_labels=("content", "style", *methods), cell=256), quality=QUALITY)
    return out


FIGURES = (distributions, demo, failures, tolerance, colours, skies, joint)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--size", type=int, help="short side of the stylized pictures; each figure has its own default")
    options = parser.parse_args()
    for figure in FIGURES:
        print(figure(options.folder, options.size))
