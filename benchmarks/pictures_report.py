"""Render the tables of style transfer and colour matching in README.md and the guides from the committed records.

python benchmarks/pictures_report.py            print the tables
python benchmarks/pictures_report.py --readme   update them in the documents
"""

from itertools import pairwise
from typing import Any

from documents import GUIDES, README, ROOT, Table, main, markdown
from records import read_record

from efdm.stats import with_error
from efdm.style.evaluate import read_records
from efdm.style.report import Group, groups, mean_and_error, sweeps

STYLE = ROOT / "results" / "style"
IN_README = ("unchanged content", "small efdm 0.75", "small efdm 1", "vgg16 efdm 1")
# decoders trained with the same settings except for the method
METHODS = ("efdm", "adain", "hm", "adamean", "adastd")
MEASURES = {
    "lpips": "content LPIPS ↓", "edge_ssim": "edge SSIM ↑", "style_distance": "style distance ↓", "mean_error": "mean ↓",
    "std_error": "std ↓", "skewness_error": "skewness ↓", "kurtosis_error": "kurtosis ↓",
    "infinity_norm_error": "infinity norm ↓",
}  # fmt: skip
JOINT_MEASURES = {"lpips": "content LPIPS ↓", "style_distance": "style distance ↓", "gram_distance": "Gram error ↓"}
EQUAL_CONTENT = (0.42, 0.46, 0.50, 0.54)


def quality() -> dict[str, Group]:
    return {group.label: group for group in groups(read_records(STYLE / "evaluation"))}


def speed() -> dict[str, dict[tuple[str, str, str, int], dict[str, Any]]]:
    """Return the rows by device and by (network, method, style, batch)."""
    found = {}
    for device in ("cpu", "cuda"):
        rows = read_record(f"pictures-{device}.json")["rows"]
        found[device] = {(r["network"], r["method"], r["style"], r["batch"]): r for r in rows}
    return found


def _times(network: str) -> list[str]:
    """Return seconds on the CPU and images/s on the GPU in batches of 1 / 8, with prepared and with encoded styles."""
    cpu, gpu = speed().values()
    seconds = f"{cpu[network, 'efdm', 'prepared', 1]['seconds']:.2f} s"
    per_second = (
        " / ".join(f"{gpu[network, 'efdm', style, batch]['pictures_per_second']:,.0f}" for batch in (1, 8))
        for style in ("look", "encoded")
    )
    return [seconds, *per_second]


def cell(group: Group, measure: str) -> str:
    """Return the mean of a measure over pairs with its standard error."""
    return with_error(*mean_and_error(group.values(measure)), ".3f")


def readme_table() -> str:
    head = ["model", "content LPIPS ↓", "style distance ↓", "2 CPU cores", "H200, images/s", "with encoded styles"]
    found = quality()
    rows = []
    for label in IN_README:
        network, _, strength = label.partition(" efdm ")
        times = _times(network) if strength == "1" else ["", "", ""]  # timed at strength 1 only
        name = f"`{network}`, strength {strength}" if strength else label
        rows.append([name, *(cell(found[label], measure) for measure in ("lpips", "style_distance")), *times])
    return markdown(head, rows)


def method_sweeps() -> dict[str, list[Group]]:
    """Return the sweeps over strengths of the decoders trained with the same settings."""
    by_model = {s[0].candidate.get("model"): s for s in sweeps(list(quality().values())).values()}
    return {method: by_model[f"vgg16-{method}-15k"] for method in METHODS}


def methods_table() -> str:
    """Compare the methods at strength 1."""
    rows = [[f"`{m}`", *(cell(sweep[-1], measure) for measure in MEASURES)] for m, sweep in method_sweeps().items()]
    return markdown(["method", *MEASURES.values()], rows)


def style_at(sweep: list[Group], lpips: float) -> float | None:
    """Return the style distance at a content LPIPS, interpolated linearly between two strengths of a sweep."""
    points = sorted((mean_and_error(g.values("lpips"))[0], mean_and_error(g.values("style_distance"))[0]) for g in sweep)
    for (x, y), (next_x, next_y) in pairwise(points):
        if x <= lpips <= next_x:
            return y + (next_y - y) * (lpips - x) / (next_x - x)
    return None


def equal_content_table() -> str:
    rows = []
    for method, sweep in method_sweeps().items():
        found = (style_at(sweep, lpips) for lpips in EQUAL_CONTENT)
        rows.append([f"`{method}`", *("-" if f is None else f"{f:.3f}" for f in found)])
    return markdown(["style distance at content LPIPS", *(f"{lpips:.2f}" for lpips in EQUAL_CONTENT)], rows)


def joint_table() -> str:
    """Return the distances of joint matching as shares of that of EFDM, with their ranges, and the Gram errors."""
    found = {(row["layer"], row["candidate"]): row for row in read_record("joint-cpu.json")["distances"]}
    layers = sorted({layer for layer, _ in found})
    rows = []
    for name in dict.fromkeys(candidate for _, candidate in found):
        cells = [found[layer, name] for layer in layers]
        shares = [f"{row['share']:.2f} ({row['least']:.2f}-{row['most']:.2f})" for row in cells]
        rows.append([name, *shares, *("-" if name == "halves" else f"{row['gram_error']:.3f}" for row in cells)])
    return markdown(["match", *layers, *(f"Gram error, {layer}" for layer in layers)], rows)


def joint_pictures_table() -> str:
    """Compare the pictures of `efdm evaluate style` with the methods efdm, wct and joint."""
    found = [group for group in groups(read_records(STYLE / "joint")) if "model" in group.candidate]
    rows = []
    for group in found:
        names = (f"`{group.candidate[key]}`" for key in ("model", "method"))
        rows.append([*names, *(cell(group, measure) for measure in JOINT_MEASURES)])
    pairs, side = len(found[0].records), found[0].records[0]["settings"]["size"]
    table = markdown(["model", "method", *JOINT_MEASURES.values()], rows)
    return f"Means over {pairs} held-out pairs at {side} pixels ± standard errors:\n\n{table}"


def colours_table() -> str:
    cpu, gpu = (read_record(f"colours-{device}.json")["rows"] for device in ("cpu", "cuda"))
    columns = [{row["name"]: f"{row['seconds'] * 1000:.0f} ms" for row in rows if "seconds" in row} for rows in (cpu, gpu)]
    rows = [
        [row["name"], f"{row['channels']:.3f}", f"{row['joint']:.2f}", *(times.get(row["name"], "") for times in columns)]
        for row in cpu
    ]
    return markdown(["", "channels ↓", "joint ↓", "2 cores", "GPU"], rows)


SCRIPT = "pictures_report.py"
TABLES = (
    Table(README, "style table", SCRIPT, readme_table),
    Table(GUIDES / "train-style.md", "methods table", SCRIPT, methods_table),
    Table(GUIDES / "train-style.md", "equal content table", SCRIPT, equal_content_table),
    Table(GUIDES / "operations.md", "joint table", SCRIPT, joint_table),
    Table(GUIDES / "operations.md", "joint pictures table", SCRIPT, joint_pictures_table),
    Table(GUIDES / "match-colours.md", "colours table", SCRIPT, colours_table),
)


if __name__ == "__main__":
    main(TABLES, __doc__)
