"""Render the tables on the reproduction of style transfer from the committed records.

python benchmarks/style_report.py            print the tables
python benchmarks/style_report.py --readme   update them in docs/reproduction.md, the guide and results/style
"""

import json
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from documents import GUIDES, ROOT, Table, main, markdown
from pictures_report import STYLE, method_sweeps, speed
from records import read_record
from reproduction import ABSENT, FAILS, HOLDS, OPEN, PAGE, Row
from scipy import stats

from efdm.lab.compare import ALPHA, p_text
from efdm.stats import standard_error, with_error

FIGURES = ROOT / "docs" / "figures" / "paper"
TITLES = {
    "gatys": "Gatys", "cmd": "CMD", "hm-skimage": "HM, scikit-image", "hm": "HM, ours", "efdm": "EFDM", "adain": "AdaIN",
    "adamean": "AdaMean", "adastd": "AdaStd",
}  # fmt: skip
PAPER_SECONDS = {"gatys": 25.61, "cmd": 19.84, "hm-skimage": 0.33, "efdm": 0.0039, "adain": 0.0038}  # Table 3, one V100
MEASURES = {"lpips": "content LPIPS ↓", "edge_ssim": "edge SSIM ↑", "style_distance": "style distance ↓"}
PHOTO_MEASURES = {"edge_ssim": 2, "lpips": 2, "color_distance": 0}  # measure -> digits
PHOTO_ROWS = {
    "content": "unchanged content", "none": "plain model", "guided": "`--photoreal guided`", "grid": "`--photoreal grid`",
    "match": "`efdm match` (colours only)",
}  # fmt: skip


def read(path: Path) -> Any:
    """Return the content of a record, or None if the file does not exist."""
    return json.loads(path.read_text()) if path.is_file() else None


def link(path: Path) -> str:
    """Return a link to a file, for documents in docs/."""
    name = path.relative_to(ROOT).as_posix()
    return f"[{path.parent.name}/{path.name}](../{name})"


def judged(holds: bool) -> str:
    return HOLDS if holds else FAILS


def pairs_row(place: str, claim: str, first: str, second: str, measure: str) -> Row:
    """Compare two decoders on the same pairs at strength 1: ``second`` has the lower ``measure``. Paired t-test."""
    both = [method_sweeps()[method][-1].values(measure) for method in (first, second)]
    change = [b - a for a, b in zip(*both, strict=True)]
    mean, p = statistics.fmean(change), float(stats.ttest_rel(*both).pvalue)
    words = " → ".join(f"{statistics.fmean(values):.3f}" for values in both)
    found = f"{words} ({with_error(mean, standard_error(change), '+.3f')}, {p_text(p)}; {len(change)} pairs)"
    said = OPEN if p >= ALPHA else f"{judged(mean < 0)} (one seed)"
    return Row(place, claim, "VGG-16", "figure", found, said, link(STYLE / "evaluation" / "records.jsonl"))


def curves_row(claim: str, key: str) -> Row:
    """Compare EFDM and AdaIN with VGG-19 over style weights, strengths and seeds; errors by bootstrap."""
    path = STYLE / "methods" / "comparison.json"
    record = read(path)
    if record is None:
        return Row("Figure 5", claim, "VGG-19", "figure", "-", ABSENT, "`benchmarks/style_methods.py`")
    found = record["comparison"][f"{key}, efdm - adain"]
    said = OPEN if abs(found["mean"]) < 2 * found["error"] else judged(found["mean"] < 0)
    ours = with_error(found["mean"], found["error"], "+.4f")
    return Row("Figure 5", claim, "VGG-19", "figure", ours, said, link(path))


def example_row() -> Row:
    path = FIGURES / "figure-2.json"
    found = {name: row["values"] for name, row in read(path)["numbers"].items()}
    equal = {name: sorted(found[name]) == sorted(found["style y"]) for name in ("AdaIN", "HM", "EFDM")}
    words = "; ".join(f"{name} {'equal' if same else 'different'}" for name, same in equal.items())
    claim = "worked example: only EFDM gives the values of the style"
    return Row("Figure 2", claim, "-", "figure", words, judged(list(equal.values()) == [False, False, True]), link(path))


def strength_row() -> Row:
    path = FIGURES / "figure-6.json"
    record = read(path)
    sweeps: dict[str, list[Any]] = {}
    for row in record["numbers"]:
        sweeps.setdefault(row["pair"][0], []).append(row)
    holds = all(
        a["lpips"] <= b["lpips"] and a["style_distance"] >= b["style_distance"]
        for sweep in sweeps.values()
        for a, b in pairwise(sweep)
    )
    words = "; ".join(
        f"{name}: {title} {sweep[0][key]:.2f} to {sweep[-1][key]:.2f}"
        for name, sweep in sweeps.items()
        for key, title in (("lpips", "LPIPS"), ("style_distance", "style distance"))
    )
    claim = "strength leads gradually from content to style"
    return Row("Figure 6", claim, record["model"], "figure", words, judged(holds), link(path))


def mixtures_row() -> Row:
    path = FIGURES / "figure-7.json"
    record = read(path)
    mixtures = record["numbers"]["mixtures"]
    nearest = [min((m["style_distances"][k], m["weights"][k]) for m in mixtures)[1] for k in range(4)]
    words = "the mixture closest to each style has it with weight " + ", ".join(f"{weight:g}" for weight in nearest)
    claim = "mixtures lie between four styles"
    return Row("Figure 7", claim, record["model"], "figure", words, judged(min(nearest) >= 0.75), link(path))


def time_rows() -> Iterator[Row]:
    gpu, place, setting = speed()["cuda"], "Table 3", "VGG-16, H200, bf16"
    measured = link(ROOT / "benchmarks" / "results" / "pictures-cuda.json")
    efdm, adain = (1e3 * gpu["vgg16", method, "encoded", 1]["seconds"] for method in ("efdm", "adain"))
    found, claim = f"{efdm:.2f} and {adain:.2f} ms", "EFDM is about as fast as AdaIN (within 5 %)"
    yield Row(place, claim, setting, "3.9 and 3.8 ms", found, judged(efdm / adain < 1.05), measured)
    paper, claim = "256/s on a V100, not synchronized", "EFDM makes 256 pictures of 512 x 512 per second"
    yield Row(place, claim, setting, paper, f"{1e3 / efdm:.0f}/s", "not comparable", measured)
    claim, slower = "EFDM is faster than Gatys, CMD and HM", ("gatys", "cmd", "hm-skimage")
    paper = ", ".join(f"{TITLES[m]} {PAPER_SECONDS[m]:g} s" for m in slower)
    path = STYLE / "table3" / "cuda.json"
    record = read(path)
    if record is None:
        yield Row(place, claim, "VGG-19", paper, "-", ABSENT, "`benchmarks/table3.py`")
    else:
        times = seconds_of(record)
        words = ", ".join(f"{TITLES[m]} {times[m]:.3g} s" for m in (*slower, "efdm"))
        holds = all(times[m] > times["efdm"] for m in slower)
        yield Row(place, claim, "VGG-19, H200", paper, words, judged(holds), link(path))
    yield Row(place, "users prefer EFDM", "-", "29.8 % of the votes, AdaIN 21.0 %", "-", ABSENT, "`efdm study`")


def seconds_of(record: Any, precision: str = "fp32") -> dict[str, float]:
    return {row["method"]: row["seconds"] for row in record["times"] if row["precision"] == precision}


def rows() -> list[Row]:
    """Return the claims in the order of the paper."""
    five, eight = "Figure 5", "Figure 8"
    return [
        example_row(),
        pairs_row(five, "EFDM preserves more content than AdaIN (LPIPS)", "adain", "efdm", "lpips"),
        pairs_row(five, "EFDM is closer to the style than AdaIN (style distance)", "adain", "efdm", "style_distance"),
        pairs_row(five, "EFDM matches skewness better than AdaIN (relative error)", "adain", "efdm", "skewness_error"),
        curves_row("EFDM is closer to the style than AdaIN at equal content", "style_distance at equal lpips"),
        curves_row("EFDM preserves more content than AdaIN at equal style", "lpips at equal style_distance"),
        strength_row(),
        mixtures_row(),
        pairs_row(eight, "AdaStd gives a wrong tone: AdaIN has the lower error of means", "adastd", "adain", "mean_error"),
        pairs_row(eight, "AdaIN preserves more content than AdaMean (LPIPS)", "adamean", "adain", "lpips"),
        pairs_row(eight, "EFDM preserves more content than HM (LPIPS)", "hm", "efdm", "lpips"),
        *time_rows(),
    ]


def claims_table() -> str:
    head = ["in the paper", "claim", "setting", "paper", "here", "verdict", "record"]
    return markdown(head, [list(row[:-1]) for row in rows()])


def table3() -> str:
    """Return the paper's Table 3 with our times and distances, "-" for what was not measured, and Figure 5."""
    gpu, cpu = (read(STYLE / "table3" / f"{device}.json") or {"times": []} for device in ("cuda", "cpu"))
    columns = [PAPER_SECONDS, seconds_of(gpu), seconds_of(gpu, "bf16, CUDA graph"), seconds_of(cpu)]
    lines = []
    for method in ("gatys", "cmd", "hm-skimage", "hm", "efdm", "adain"):
        found = [f"{times[method]:.3g} s" if method in times else "-" for times in columns]
        measured = gpu.get("quality", {}).get(method)
        distances = (with_error(*measured[m], ".3f") if measured else "-" for m in MEASURES)
        lines.append([TITLES[method], *found, *distances])
    table = markdown(["method", "paper, V100", "H200", "H200, bf16 graph", "2 cores", *MEASURES.values()], lines)
    if not (FIGURES / "figure-5.webp").is_file():
        return table
    return f"{table}\n\n![Figure 5: all methods](../../docs/figures/paper/figure-5.webp)"


def photoreal_table() -> str:
    means = read_record("photoreal.json")["means"]
    lines = []
    for name, title in PHOTO_ROWS.items():
        found = means[name]
        time = f"{found['seconds']:.2f} s" if name != "content" else ""
        lines.append([title, *(f"{found[key]:.{digits}f}" for key, digits in PHOTO_MEASURES.items()), time])
    return markdown(["", "edge SSIM ↑", "content LPIPS ↓", "colour distance ↓", "time"], lines)


TABLES = (
    Table(PAGE, "style table", "style_report.py", claims_table),
    Table(STYLE / "README.md", "table 3", "style_report.py", table3),
    Table(GUIDES / "stylize.md", "photoreal table", "style_report.py", photoreal_table),
)


if __name__ == "__main__":
    main(TABLES, __doc__)
