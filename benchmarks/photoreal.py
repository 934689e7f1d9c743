"""Measure photo-realistic style transfer on pairs of photographs, and write a record and a sheet.

    python benchmarks/photoreal.py --pairs photoreal.zip [--size 384] [--out FILE] [--sheet FILE]

The pairs are `NN_content` and `NN_style` in a folder or a zip, such as those of deep-photo-styletransfer (Luan et al. 2017).
Compared are the unchanged content, the rows of `PHOTOREAL` ("none" is the plain model), and matching of colours without a
network. Pictures are stylized at a short side of ``--size``; edge SSIM and colours are measured at the same size and LPIPS
(VGG-16, searched as `efdm evaluate style` does) at 256. "color_distance" is the sliced Wasserstein distance between the RGB
values of output and style, in levels of 255. "seconds" is processor time, which depends little on other processes.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from records import ROOT, make_parser, write_record
from torch import Tensor

from efdm import match_picture
from efdm.data import find_pictures, resize_short_side, write_picture
from efdm.data.sheets import sheet
from efdm.nn.losses import random_directions, sliced_loss
from efdm.style import Stylizer
from efdm.style.measures import LPIPS_TAPS, Metrics, edge_ssim, load_metrics, lpips
from efdm.style.photoreal import PHOTOREAL

SHOWN = ("02", "06", "13", "24", "30", "36")  # pairs of the sheet
LPIPS_SIDE, DIRECTIONS = 256, 64
METHODS = (*PHOTOREAL, "match")
MEASURES = ("edge_ssim", "lpips", "color_distance")


def color_distance(output: Tensor, style: Tensor) -> float:
    directions = random_directions(DIRECTIONS, 3, torch.Generator().manual_seed(0))
    return 255 * sliced_loss(output[None], style[None], directions, norm="l1").item()


def results(stylizer: Stylizer, content: Tensor, style: Tensor) -> Iterator[tuple[str, Tensor, float]]:
    """Yield the name, the output and the processor time of every method; the network runs once for all filters."""

    def timed(method: Callable[..., Tensor], *pictures: Tensor) -> tuple[Tensor, float]:
        start = time.process_time()
        return method(*pictures), time.process_time() - start

    yield "content", content, 0.0
    plain, seconds = timed(partial(stylizer.stylize, strength=1.0), content, style)
    for name, filtered in PHOTOREAL.items():
        output, more = timed(filtered, content[None], plain[None])
        yield name, output[0], seconds + more
    yield "match", *timed(match_picture, content, style)


def measured(metrics: Metrics, content: Tensor, style: Tensor, output: Tensor) -> dict[str, float]:
    """Return the `MEASURES` of an output."""
    features = (metrics.vgg.taps(resize_short_side(x, LPIPS_SIDE)[None], LPIPS_TAPS) for x in (output, content))
    return {
        "edge_ssim": round(edge_ssim(output[None], content[None]).item(), 4),
        "lpips": round(lpips(*features, metrics.heads).item(), 4),
        "color_distance": round(color_distance(output, style), 2),
    }


def means(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the mean measures and the median time of every method."""
    found: dict[str, dict[str, float]] = {}
    for name in ("content", *METHODS):
        own = [row for row in rows if row["method"] == name]
        found[name] = {key: round(statistics.fmean(row[key] for row in own), 4) for key in MEASURES}
        found[name]["seconds"] = statistics.median(row["seconds"] for row in own)
    return found


@torch.inference_mode()
def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--model", default="small")
    parser.add_argument("--weights", type=Path, help="weights of the model; defaults to the shipped file")
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--most", type=int, help="maximum number of pairs")
    parser.add_argument("--sheet", type=Path, default=ROOT / "docs" / "figures" / "paper" / "photoreal.webp")
    options = parser.parse_args()
    pictures = {source.stem: source for source in find_pictures(options.pairs)}
    numbers = sorted(stem.removesuffix("_content") for stem in pictures if stem.endswith("_content"))[: options.most]
    stylizer, metrics = Stylizer.from_pretrained(options.model, "cpu", options.weights), load_metrics()
    for kernels in (stylizer.stylize, match_picture):  # compiles CPU kernels
        kernels(torch.rand(3, 64, 64), torch.rand(3, 64, 64))
    rows, shown = [], []
    for number in numbers:
        content, style = (
            resize_short_side(pictures[f"{number}_{k}"].read().rgb, options.size) for k in ("content", "style")
        )
        outputs = []
        for name, output, seconds in results(stylizer, content, style):
            found = measured(metrics, content, style, output)
            rows.append({"pair": number, "method": name, **found, "seconds": round(seconds, 3)})
            outputs.append(output)
        print(number, *(row["lpips"] for row in rows[-len(outputs) :]), flush=True)
        if number in SHOWN:
            shown.append([content, style, *outputs[1:]])
    record = {"model": options.model, "size": options.size, "pairs": len(numbers), "means": means(rows), "rows": rows}
    write_record(record, options.out, "photoreal.json")
    if shown:
        labels = ("content", "style", "plain", *METHODS[1:])
        write_picture(options.sheet, sheet(shown, column_labels=labels, cell=(150, 200), gap=6), quality=75)
    print(json.dumps(record["means"], indent=1))


if __name__ == "__main__":
    main()
