"""Render the tables of domain generalization from the committed records.

python benchmarks/lab_report.py            print the tables of the documents
python benchmarks/lab_report.py --readme   update these tables and all pages in results/
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from documents import GUIDES, README, ROOT, Table, main, markdown
from records import read_record

from efdm import lab

MIXES = {
    "mixstyle": "MixStyle", "efdmix": "EFDMix", "efdmix-flow": "EFDMix with style gradient",
    "distribution-noise": "distribution noise", "three_sort": "EFDMix by three sorts",
}  # fmt: skip


def step_records() -> list[dict[str, Any]]:
    """Return the records of training steps."""
    return [read_record(f"dg-{device}.json") for device in ("cpu", "cuda")]


def steps() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the times of training steps by (machine, backbone)."""
    found = {}
    for record in step_records():
        environment = record["environment"]
        machine = environment["device_name"] if environment["device"] == "cuda" else "one CPU core"
        found.update({(machine, row["backbone"]): row for row in record["steps"]})
    return found


def cost_table() -> str:
    """Return the time of a training step of ERM and the overhead of each mixing method in percent."""
    rows = []
    for (machine, backbone), row in steps().items():
        found = row["times"]
        mixes = [f"{100 * (found[name]['to_erm'] - 1):+.1f} %" for name in MIXES]
        rows.append([machine, f"`{backbone}`", str(row["batch"]), f"{found['erm']['median_ms']:.1f} ms", *mixes])
    return markdown(["machine", "network", "batch", "step of ERM", *MIXES.values()], rows)


PACS = ROOT / "results" / "pacs-resnet18" / "leave-one-out"
README_METHODS = (
    "erm", "mixstyle", "mixstyle-flow", "mixstyle-labels", "efdmix", "efdmix-flow", "efdmix-labels", "efdmix-labels-flow",
    "dsu", "crossnorm", "distribution-noise",
)  # fmt: skip


def pacs_table() -> str:
    """Return the measured accuracies of the main methods with standard errors, next to the paper's averages."""
    study = lab.read_study(PACS)
    table = lab.accuracy_table(study, "last", std="error")
    published = [line for line in study.recipe.published if line.source.startswith("paper")]  # the EFDM paper
    paper = {line.row: f"{line.values['average'][0]:.1f}" for line in published}
    paper |= {f"{row}-flow": average for row, average in paper.items() if row.startswith("efdmix")}  # the authors' code
    here = [(method, cells) for method, source, *cells in table.rows if source == "here" and method in README_METHODS]
    rows = [[f"`{method}`", *cells, paper.get(method, "")] for method, cells in here]
    what = "PACS, leave one domain out, ResNet-18, accuracy in % at the last step ± standard error over seeds:"
    made = markdown(["method", *(name.replace("_", " ") for name in table.head[2:]), "paper, ResNet-18"], rows)
    return "\n\n".join([what, made, *(note for note in study.recipe.notes if "ImageNet" in note)])


# folder of analyses -> folder of each model's -> column
FEATURES = {
    ROOT / "results" / "pacs" / "features": {"erm": "ERM", "efdmix": "EFDMix"},
    ROOT / "results" / "pacs-resnet18" / "features": {"erm": "ERM", "prelu": "ERM with PReLU"},
}


def analysed(folder: Path, analysis: str) -> dict[str, dict[str, Any]]:
    """Return the numbers of an analysis for each model."""
    paths = {name: folder / part / f"{analysis}.json" for part, name in FEATURES[folder].items()}
    return {name: json.loads(path.read_text()) for name, path in paths.items()}


def histogram_table(folder: Path) -> str:
    """Return the kurtosis and the distance to the normal distribution for each domain and model."""
    found = {name: content["domains"] for name, content in analysed(folder, "histogram").items()}
    measures = {"kurtosis": "kurtosis", "distance_to_normal": "distance to normal"}
    rows = []
    for domain in next(iter(found.values())):
        middle = [found[name][domain]["median_over_channels"] for name in found]
        rows.append([domain, *(f"{each[measure]:.2f}" for measure in measures for each in middle)])
    return markdown(["domain", *(f"{words}, {name}" for words in measures.values() for name in found)], rows)


def probe_table(folder: Path) -> str:
    """Return how well a linear probe predicts the domain from each feature statistic, in percent."""
    found = {name: content["accuracy"] for name, content in analysed(folder, "tsne").items()}
    statistics = next(iter(found.values()))
    rows = [[s.replace("_", " "), *(f"{100 * each[s]['mean']:.1f}" for each in found.values())] for s in statistics]
    return markdown(["statistic", *found], rows)


EVALUATORS = {
    "efdm": "`rank`", "efdm_k_reciprocal": "`rank` after re-ranking", "torchreid_cython": "torchreid, Cython",
    "torchreid_python": "torchreid, Python",
}  # fmt: skip


def retrieval_table() -> str:
    """Return the times of the evaluators for a set of the size of Market-1501."""
    records = [read_record(f"retrieval-{device}.json") for device in ("cpu", "cuda")]
    rows = [
        [words, *(f"{r['rows'][name]['seconds']:.3g} s" if name in r["rows"] else "-" for r in records)]
        for name, words in EVALUATORS.items()
    ]
    return markdown(["evaluator", "two CPU cores", "NVIDIA H200"], rows)


SCRIPT = "lab_report.py"
TABLES = (
    Table(GUIDES / "domain-generalization.md", "cost table", SCRIPT, cost_table),
    Table(README, "PACS table", SCRIPT, pacs_table),
    Table(GUIDES / "re-identification.md", "retrieval table", SCRIPT, retrieval_table),
    *(
        Table(folder / "README.md", f"{name} table", SCRIPT, partial(render, folder))
        for folder in FEATURES
        for name, render in (("histogram", histogram_table), ("probe", probe_table))
    ),
)


def pages() -> list[Path]:
    """Return the paths of the pages of all sweeps. Each page is hand-written text followed by tables."""
    return [path.with_name("README.md") for path in sorted((ROOT / "results").rglob("recipe.json"))]


def page(path: Path) -> str:
    """Return a page with updated tables, which start at the first third-level heading. A new page has a title only."""
    study = lab.read_study(path.parent)
    text = path.read_text() if path.exists() else f"# {lab.recipes()[study.recipe.name].rstrip('.')}\n"
    tables = "\n".join(lab.render(table, "markdown") for table in lab.tables(study))
    return text.split("\n### ")[0].rstrip() + "\n\n" + tables


if __name__ == "__main__":
    if main(TABLES, __doc__):
        for path in pages():
            path.write_text(page(path))
