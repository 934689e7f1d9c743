"""Time and evaluate the methods of the paper's Table 3 and Figure 5, all with the normalized VGG-19 up to relu4_1.

    python benchmarks/table3.py --inputs figure-inputs.zip --photos photoreal.zip --out runs/table3 [--device cuda]
        [--decoder METHOD=FILE ...] [--side 512] [--size 384] [--iterations N] [--limit SECONDS]
    python benchmarks/table3.py --judge --inputs figure-inputs.zip --photos photoreal.zip --out runs/table3

The first command times one picture of ``--side`` x ``--side`` pixels, with the device synchronized, and stylizes all pairs
at a short side of ``--size``. The second measures the pictures, on any machine, with VGG-16 as in `efdm evaluate style`, and
writes the record and Figure 5. ``--inputs`` is the folder "input" of pytorch-AdaIN, ``--photos`` holds pairs of
deep-photo-styletransfer.

Gatys and CMD optimize pixels, starting from the content: Gram matrices of relu1_1 to relu4_1 and the content at relu4_1, by
L-BFGS; moments of conv1_1 to conv4_1, by Adam. AdaIN, HM and EFDM include both encodings and the decoding. "hm-skimage" is
the published form of HM: scikit-image on the CPU. A method without ``--decoder`` uses that of EFDM, which defaults to the
weights "vgg19-efdm". With ``--iterations``, times of optimizers are extrapolated to their own number. "fp32" means torch's
defaults: on a GPU, TF32 in convolutions.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pictures import graphed, seconds
from records import ROOT
from torch import Tensor

from efdm.data import find_pictures, read_picture, resize_short_side, write_picture
from efdm.data.sheets import sheet
from efdm.environment import environment
from efdm.models import StyleNetwork
from efdm.models.weights import checksum, find, pretrained
from efdm.stats import standard_error
from efdm.style.measures import load_metrics
from efdm.style.optimize import CONVS, OPTIMIZERS, RELUS, gram_loss, optimize
from efdm.style.pipeline import transfer
from efdm.training.device import default_device

SHOWN = (("cornell", "woman_with_hat_matisse"), ("brad_pitt", "picasso_self_portrait"))  # rows of Figure 5
PHOTOS = (("02_content", "02_style"), ("24_content", "24_style"))  # photo-realistic rows of Figure 5, not judged
PAIRS = (  # pictures of AdaIN's figures, which the paper uses as well
    *SHOWN, ("avril", "antimonocromatismo"), ("golden_gate", "la_muse"), ("modern", "goeritz"),
    ("lenna", "woman_in_peasant_dress_cropped"), ("sailboat", "sketch"), ("newyork", "brushstrokes"),
    ("blonde_girl", "mondrian"), ("chicago", "asheville"),
    ("flowers", "trial"), ("cornell", "contrast_of_forms"),
)  # fmt: skip
TRAINED = ("adain", "hm", "efdm")
OPTIMIZED = {
    # chosen by eye on one portrait: with a scale of 1, the content is almost unchanged
    "gatys": replace(
        OPTIMIZERS["gatys"], style_taps=RELUS[:4], style_loss=partial(gram_loss, scale=10.0), content_tap="relu4_1"
    ),
    "cmd": replace(OPTIMIZERS["cmd"], style_taps=CONVS[:4]),
}
METHODS = (*OPTIMIZED, *TRAINED)
ROUNDS = {"cpu": 5, "cuda": 21}
MEASURES = (
    "lpips", "edge_ssim", "style_distance", "gram_distance", "skewness_error", "kurtosis_error", "infinity_norm_error",
)  # fmt: skip
Pair = tuple[str, str]
Method = Callable[[Tensor, Tensor], Tensor]  # content and style, (1, 3, h, w) -> output


def pictures(options: argparse.Namespace, pairs: Sequence[Pair], size: int) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the name, the content and the style of every pair whose pictures are found."""
    folders = [find_pictures(path) for path in (options.inputs, options.photos) if path]
    found = {Path(source.stem).name: source for folder in folders for source in folder}
    for pair in pairs:
        if set(pair) <= set(found):
            rgb = (found[name].read().rgb for name in pair)
            yield "__".join(pair), [channels_last(resize_short_side(each, size)[None].to(options.device)) for each in rgb]


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def trained(network: StyleNetwork, method: str) -> Method:
    @torch.inference_mode()
    def run(content: Tensor, style: Tensor) -> Tensor:
        return transfer(network, content, network.features(style), method=method).clamp(0, 1)

    return run


def optimized(name: str, network: StyleNetwork, iterations: int | None) -> Method:
    return lambda content, style: optimize(content, style, OPTIMIZED[name], network.stages[0], iterations=iterations)  # type: ignore[arg-type]


def with_skimage(network: StyleNetwork) -> Method:
    """Return style transfer with histogram matching as published: on the CPU, channel by channel, for a batch of one."""
    from skimage.exposure import match_histograms

    @torch.inference_mode()
    def run(content: Tensor, style: Tensor) -> Tensor:
        features = [network.features(picture)[0] for picture in (content, style)]
        matched = match_histograms(*(each[0].cpu().numpy() for each in features), channel_axis=0)
        return network.decoder(torch.from_numpy(matched)[None].to(features[0])).clamp(0, 1)

    return run


def load(file: str | None, device: str) -> StyleNetwork:
    network = pretrained("vgg19", weights=file).to(device).requires_grad_(False)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def times(networks: dict[str, StyleNetwork], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row of seconds for every method and precision."""
    device, rows = options.device, []
    inputs = [channels_last(torch.rand(1, 3, options.side, options.side, device=device)) for _ in range(2)]

    def add(calls: dict[str, Callable[[], object]], rounds: int, *, precision: str = "fp32", share: float = 1) -> None:
        found: dict[str, list[float]] = {method: [] for method in calls}
        for _ in range(rounds):  # methods alternate, so that a temporary slowdown affects all of them
            for method, call in calls.items():
                found[method].append(seconds(call, device) / share)
        for method, some in found.items():
            median = round(statistics.median(some), 6)
            rows.append({"method": method, "precision": precision, "seconds": median, "share_timed": share})
            print(rows[-1], flush=True)

    calls = {method: partial(trained(networks[method], method), *inputs) for method in TRAINED}
    published = {"hm-skimage": partial(with_skimage(networks["hm"]), *inputs)}
    for call in (*calls.values(), *published.values()):
        call()  # compiles kernels
    add(calls, ROUNDS[device])
    add(published, 3)
    if device == "cuda":
        halves, graphs = [x.bfloat16() for x in inputs], {}
        for method in ("adain", "efdm"):
            run = trained(load(options.files[method], device).bfloat16(), method)
            graphs[method] = graphed(lambda x, run=run: run(x, halves[1]), halves[0])
        add(graphs, ROUNDS[device], precision="bf16, CUDA graph")
    for method, row in OPTIMIZED.items():
        optimized(method, networks["efdm"], 2)(*inputs)
        steps = options.iterations or row.iterations
        add({method: partial(optimized(method, networks["efdm"], steps), *inputs)}, 1, share=steps / row.iterations)
    return rows


def make(options: argparse.Namespace) -> None:
    """Measure the times, stylize all pairs with all methods, and write both."""
    start = time.perf_counter()
    loaded = {file: load(file, options.device) for file in set(options.files.values())}
    networks = {method: loaded[file] for method, file in options.files.items()}
    record = {"environment": environment(options.device), "side": options.side, "size": options.size}
    record["decoders"] = {m: checksum(file or find("vgg19-efdm"))[:12] for m, file in options.files.items()}
    torch.backends.cudnn.benchmark = True
    record["times"] = times(networks, options)
    torch.backends.cudnn.benchmark = False  # the pairs have many shapes, and cuDNN would search algorithms for each
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "times.json").write_text(json.dumps(record, indent=1) + "\n")
    methods = {name: optimized(name, networks["efdm"], options.iterations) for name in OPTIMIZED}
    methods |= {name: trained(networks[name], name) for name in TRAINED}
    for name, pair in pictures(options, PHOTOS + PAIRS[: options.pairs], options.size):
        if time.perf_counter() - start > options.limit:
            print(f"stopped before {name}, at the limit of {options.limit} s")
            break
        for method, run in methods.items():
            write_picture(options.out / method / f"{name}.png", run(*pair)[0].cpu())
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


@torch.inference_mode()
def judge(options: argparse.Namespace) -> None:
    """Measure the pictures, and write the record and Figure 5."""
    metrics, rows = load_metrics(device=options.device), []
    record = json.loads((options.out / "times.json").read_text())
    for name, pair in pictures(options, PAIRS[: options.pairs], record["size"]):
        references = [metrics.extract(picture) for picture in pair]
        for method in METHODS:
            path = options.out / method / f"{name}.png"
            if path.exists():
                output = metrics.extract(read_picture(path).rgb[None].to(options.device))
                found = metrics.measure(output, *references)
                rows.append({"pair": name, "method": method, **{m: round(found[m].item(), 4) for m in MEASURES}})
                print(rows[-1], flush=True)
    quality: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        some = [row for row in rows if row["method"] == method]
        quality[method] = {"pairs": len(some)}
        for measure in MEASURES:
            values = [row[measure] for row in some]
            quality[method][measure] = [round(f(values), 4) for f in (statistics.fmean, standard_error)]
    out = options.record or ROOT / "results" / "style" / "table3" / f"{record['environment']['device']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**record, "quality": quality, "rows": rows}, indent=1) + "\n")
    print(f"written to {out}")
    shown = [
        [picture[0] for picture in pair] + [read_picture(options.out / method / f"{name}.png").rgb for method in METHODS]
        for name, pair in pictures(options, SHOWN + PHOTOS, record["size"])
        if all((options.out / method / f"{name}.png").exists() for method in METHODS)
    ]
    write_picture(options.figure, sheet(shown, column_labels=("content", "style", *METHODS), cell=160, gap=5), quality=72)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/table3"), help="folder of times and pictures")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "figures" / "paper" / "figure-5.webp")
    parser.add_argument("--decoder", action="append", default=[], metavar="METHOD=FILE")
    parser.add_argument("--device", choices=tuple(ROUNDS), default=default_device())
    for name, default in {"side": 512, "size": 384, "pairs": len(PAIRS), "limit": 10**6}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--iterations", type=int, help="of the optimizers; default: their own")
    options = parser.parse_args(words)
    given = dict(word.split("=", 1) for word in options.decoder)
    options.files = {method: given.get(method, given.get("efdm")) for method in TRAINED}
    (judge if options.judge else make)(options)


if __name__ == "__main__":
    main()
