"""Draw figures of the paper with our models, each with its numbers in a JSON file beside it.

    python docs/figures/paper.py example
    python docs/figures/paper.py strength|styles|orders --inputs figure-inputs.zip [--model vgg16] [--weights FILE]
        [--decoder METHOD=FILE ...] [--size 256] [--folder docs/figures/paper]

example: Figure 2, the worked example. strength: Figure 6. styles: Figure 7, between four styles. orders: Figure 8, matching
of single moments and of the distribution. Figure 5 is drawn by `benchmarks/table3.py --judge`. ``--inputs`` is the folder
"input" of pytorch-AdaIN or a zip of it. In `orders`, methods without ``--decoder`` use the decoder of the model. Distances
are those of `efdm evaluate style`, with VGG-16, at the size of the pictures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from efdm import MATCHERS, channel_stats
from efdm.data import find_pictures, resize_short_side, write_picture
from efdm.data.images import centre_crop
from efdm.data.sheets import sheet
from efdm.environment import environment
from efdm.ops import ChannelStats
from efdm.style import Stylizer
from efdm.style.look import corner_weights
from efdm.style.measures import MetricFeatures, load_metrics, style_distance

X, Y = (0.0, 0.1, 0.0, 0.2, 0.1), (0.1, 0.0, 0.4, 0.3, 0.5)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
SWEEPS = (("cornell", "woman_with_hat_matisse"), ("brad_pitt", "picasso_self_portrait"))
CORNERS = ("la_muse", "woman_with_hat_matisse", "antimonocromatismo", "brushstrokes")  # left to right, top to bottom
MIXED, STEPS = "sailboat", 5
ORDERS = ("adamean", "adastd", "adain", "hm", "efdm")
COMPARED = (("golden_gate", "la_muse"), ("lenna", "woman_in_peasant_dress_cropped"), ("chicago", "brushstrokes"))
STYLE, MATCHED = "#d1495b", "#00798c"
Drawn = tuple[Tensor, Any]  # sheet and numbers


class Setup:
    """The pictures, the model and the metrics of the figures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.sources = {Path(source.stem).name: source for source in find_pictures(options.inputs)}
        self.stylizer = self.load(options.weights)
        self.decoders = dict(word.split("=", 1) for word in options.decoder)

    def load(self, weights: str | Path | None) -> Stylizer:
        return Stylizer.from_pretrained(self.options.model, weights=weights)

    def picture(self, name: str) -> Tensor:
        return centre_crop(resize_short_side(self.sources[name].read().rgb, self.options.size))

    @cached_property
    def metrics(self) -> Any:
        return load_metrics()

    def features(self, picture: Tensor) -> MetricFeatures:
        return self.metrics.extract(picture[None].cpu())

    def distances(self, output: Tensor, content: MetricFeatures, style: MetricFeatures) -> dict[str, float]:
        found = self.metrics.measure(self.features(output), content, style)
        names = ("lpips", "edge_ssim", "style_distance", "skewness_error", "kurtosis_error", "infinity_norm_error")
        return {name: round(found[name].item(), 4) for name in names}


def example() -> tuple[plt.Figure, Any]:
    """Draw Figure 2: values and empirical distribution functions of the worked example."""
    x, y = (torch.tensor(values, dtype=torch.float64).view(1, 1, -1) for values in (X, Y))
    rows = {"content x": x, "style y": y, "AdaIN": MATCHERS["adain"](x, y), "HM": MATCHERS["hm"](x, y)}
    rows["EFDM"] = MATCHERS["efdm"](x, y, ties="stable")
    figure, axes = plt.subplots(2, len(rows), figsize=(11, 4.2), sharex="row", sharey="row", dpi=100)
    numbers = {}
    for (name, values), (above, below) in zip(rows.items(), axes.T, strict=True):
        found = channel_stats(values)
        numbers[name] = {"values": [round(v, 4) for v in values.flatten().tolist()]}
        numbers[name] |= {field: round(getattr(found, field).item(), 4) for field in ChannelStats._fields}
        bars = above.bar(range(1, 6), values.flatten().tolist(), color=STYLE if name == "style y" else MATCHED)
        above.bar_label(bars, fmt="%.2f", fontsize=7)
        above.set(title=name, ylim=(0, 0.65))
        for line, color in ((y, STYLE), (values, MATCHED)):
            ends = torch.cat([torch.tensor([-0.1]), line.flatten().sort().values, torch.tensor([0.7])]).tolist()
            below.step(ends, [0, *((i + 1) / 5 for i in range(5)), 1], where="post", color=color, lw=1.4)
        words = (f"{field.replace('_', ' ')} {numbers[name][field]:.2f}" for field in ChannelStats._fields)
        below.text(0.99, 0.03, "\n".join(words), transform=below.transAxes, ha="right", va="bottom", fontsize=7)
    axes[1, 0].set_ylabel("cumulative share", fontsize=8)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)
    figure.tight_layout()
    return figure, numbers


def strength(setup: Setup) -> Drawn:
    """Draw Figure 6: from the content to the style."""
    rows, numbers = [], []
    for names in SWEEPS:
        content, style = map(setup.picture, names)
        look, references = setup.stylizer.prepare(style), [setup.features(picture) for picture in (content, style)]
        made = [setup.stylizer.stylize(content, look, strength=s) for s in STRENGTHS]
        rows.append([*made, style])
        numbers += [
            {"pair": names, "strength": s, **setup.distances(output, *references)}
            for s, output in zip(STRENGTHS, made, strict=True)
        ]
    labels = ["content", *(f"strength {s:g}" for s in STRENGTHS[1:]), "style"]  # strength 0 is the content
    return sheet(rows, column_labels=labels, cell=160, gap=5), numbers


def styles(setup: Setup) -> Drawn:
    """Draw Figure 7: mixtures of four styles, with the style distance to each of them."""
    content, corners = setup.picture(MIXED), [setup.picture(name) for name in CORNERS]
    look, references = setup.stylizer.prepare(corners), [setup.features(picture).style for picture in corners]
    shares = [i / (STEPS - 1) for i in range(STEPS)]
    rows: list[list[Tensor | None]] = []
    numbers = []
    for down in shares:
        rows.append([None] * (STEPS + 2))
        for column, across in enumerate(shares, 1):
            weights = corner_weights(across, down)
            output = rows[-1][column] = setup.stylizer.stylize(content, look.mixed(weights), strength=1.0)
            found = setup.features(output).style
            distances = [sum(style_distance(f, s).item() for f, s in zip(found, r, strict=True)) / 4 for r in references]
            numbers.append({"weights": list(weights), "style_distances": [round(d, 4) for d in distances]})
    for k, picture in enumerate(corners):
        rows[(k // 2) * (STEPS - 1)][(k % 2) * (STEPS + 1)] = picture
    rows[STEPS // 2][0] = content
    return sheet(rows, cell=128, gap=4), {"content": MIXED, "styles": CORNERS, "mixtures": numbers}


def orders(setup: Setup) -> Drawn:
    """Draw Figure 8: the role of the orders of statistics."""
    by_method = {m: setup.load(setup.decoders[m]) if m in setup.decoders else setup.stylizer for m in ORDERS}
    rows, numbers = [], []
    for names in COMPARED:
        content, style = map(setup.picture, names)
        references = [setup.features(picture) for picture in (content, style)]
        made = {m: each.stylize(content, style, method=m, strength=1.0) for m, each in by_method.items()}
        rows.append([content, style, *made.values()])
        numbers += [{"pair": names, "method": m, **setup.distances(output, *references)} for m, output in made.items()]
    return sheet(rows, column_labels=["content", "style", *ORDERS], cell=160, gap=5), numbers


FIGURES: dict[str, tuple[str, Callable[[Setup], Drawn]]] = {
    "strength": ("figure-6", strength), "styles": ("figure-7", styles), "orders": ("figure-8", orders),
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=("example", *FIGURES))
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--decoder", action="append", default=[], metavar="METHOD=FILE")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "paper")
    options = parser.parse_args(words)
    record: dict[str, Any] = {"environment": environment("cpu")}
    if options.figure == "example":
        drawn, record["numbers"] = example()
        stem = options.folder / "figure-2"
        drawn.savefig(stem.with_suffix(".webp"), pil_kwargs={"quality": 80})
    else:
        name, draw = FIGURES[options.figure]
        stem = options.folder / name
        picture, numbers = draw(Setup(options))
        record |= {"model": options.model, "size": options.size, "decoders": options.decoder, "numbers": numbers}
        write_picture(stem.with_suffix(".webp"), picture, quality=72)
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(stem.with_suffix(".webp"))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
