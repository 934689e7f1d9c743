"""Make the tables of the lab from records: the cost of mixing, and the pages in results/.

python benchmarks/lab_report.py            print the tables
python benchmarks/lab_report.py --readme   write them into the documents and the pages in results/
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from documents import README, ROOT, Table, markdown, parse_update_flag, update_documents

from efdm import lab

RESULTS = ROOT / "benchmarks" / "results"
GUIDE = ROOT / "docs" / "guide" / "domain-generalization.md"
# later files override: ResNet-50 was timed again after channels-last features were no longer copied
TIMES = ("dg-cpu.json", "dg-cuda.json", "dg-cuda-resnet50.json")
MIXES = {"mixstyle": "MixStyle", "efdmix": "EFDMix", "three_sort": "EFDMix by three sorts"}


def times() -> list[dict[str, Any]]:
    """Return the records of training-step times."""
    return [json.loads((RESULTS / name).read_text()) for name in TIMES]


def steps() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the timed steps by machine and backbone."""
    found = {}
    for record in times():
        environment = record["environment"]
        machine = environment["device_name"] if environment["device"] == "cuda" else "one CPU core"
        found.update({(machine, row["backbone"]): row for row in record["steps"]})
    return found


def cost_table() -> str:
    """Return the time of an ERM step and what mixing adds to it."""
    rows = []
    for (machine, backbone), row in steps().items():
        mixes = [f"{100 * (row['times'][name]['to_erm'] - 1):+.1f} %" for name in MIXES]
        rows.append([machine, f"`{backbone}`", str(row["batch"]), f"{row['times']['erm']['median_ms']:.1f} ms", *mixes])
    return markdown(["machine", "network", "batch", "step of ERM", *MIXES.values()], rows)


PACS = ROOT / "results" / "pacs" / "leave-one-out"
PAPER = "paper"  # prefix of the sources in the paper; other lines come from other papers


def pacs_table() -> str:
    """Return our accuracies with standard errors, and the paper's averages for ResNet-18."""
    study = lab.read_study(PACS)
    table = lab.accuracy_table(study, "last", std="error")
    paper = {
        line.row: f"{line.values['average'][0]:.1f}" for line in study.recipe.published if line.source.startswith(PAPER)
    }
    here = [(method, cells) for method, source, _, *cells in table.rows if source == "here"]
    rows = [[f"`{method}`", *cells, paper.get(method, "")] for method, cells in here]
    return markdown(["method", *(name.replace("_", " ") for name in table.head[3:]), "paper, ResNet-18"], rows)


FEATURES = ROOT / "results" / "pacs" / "features"
MODELS = {"erm": "ERM", "efdmix": "EFDMix"}  # folders of analyses


def analysed(kind: str) -> dict[str, dict[str, Any]]:
    return {name: json.loads((FEATURES / folder / f"{kind}.json").read_text()) for folder, name in MODELS.items()}


def histogram_table() -> str:
    found = {name: content["domains"] for name, content in analysed("histogram").items()}
    measures = {"kurtosis": "kurtosis", "distance_to_normal": "distance to normal"}
    rows = []
    for domain in found["ERM"]:
        middle = [found[name][domain]["median_over_channels"] for name in found]
        rows.append([domain, *(f"{each[measure]:.2f}" for measure in measures for each in middle)])
    return markdown(["domain", *(f"{words}, {name}" for words in measures.values() for name in found)], rows)


def probe_table() -> str:
    found = {name: content["accuracy"] for name, content in analysed("tsne").items()}
    rows = [
        [statistic.replace("_", " "), *(f"{100 * each[statistic]['mean']:.1f}" for each in found.values())]
        for statistic in found["ERM"]
    ]
    return markdown(["statistic", *found], rows)


def _table(document: Path, name: str, render: Callable[[], str]) -> Table:
    return Table(document, name, "lab_report.py", render)


TABLES = (
    _table(GUIDE, "cost table", cost_table),
    _table(README, "PACS table", pacs_table),
    _table(FEATURES / "README.md", "histogram table", histogram_table),
    _table(FEATURES / "README.md", "probe table", probe_table),
)


def pages() -> list[Path]:
    """Return the pages of all sweeps: hand-written text, then the tables."""
    return [path.with_name("README.md") for path in sorted((ROOT / "results").rglob("recipe.json"))]


def page(path: Path) -> str:
    """Return a page with its tables updated; they start at the first third-level heading."""
    tables = "\n".join(lab.render(table, "markdown") for table in lab.tables(lab.read_study(path.parent)))
    return path.read_text().split("\n### ")[0].rstrip() + "\n\n" + tables


if __name__ == "__main__":
    if parse_update_flag(__doc__):
        update_documents(TABLES)
        for path in pages():
            path.write_text(page(path))
    for table in TABLES:
        print(table.render(), end="\n\n")
