"""Render the table of docs/reproduction.md: the paper's claims and what the committed records say about them.

python benchmarks/reproduction.py            print the table
python benchmarks/reproduction.py --readme   update it in the document
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from documents import ROOT, Table, markdown, parse_update_flag, update_documents
from scipy import stats

from efdm import lab
from efdm.lab.compare import ALPHA, Difference, compared, comparison_parts
from efdm.lab.published import AVERAGE, Published
from efdm.lab.results import Numbers
from efdm.stats import standard_error

PAGE = ROOT / "docs" / "reproduction.md"
RESULTS = ROOT / "results"
HOLDS, FAILS, OPEN, INCOMPLETE, ABSENT = "**holds**", "**does not hold**", "inconclusive", "incomplete", "not run"
MARGIN = 1.0  # percentage points: smaller differences count as similar
NETWORKS = {
    "resnet18": "ResNet-18", "resnet18_prelu": "ResNet-18 with PReLU", "resnet50_v1": "ResNet-50",
    "mobilenetv2_100": "MobileNetV2", "osnet_x1_0": "OSNet", "osnet_x0_25": "OSNet x0.25",
}  # fmt: skip


class Row(NamedTuple):
    place: str
    claim: str
    network: str
    paper: str
    ours: str
    verdict: str
    record: str
    difference: Difference | None = None  # not printed


def verdict(d: Difference, kind: Literal["better", "similar"] = "better") -> str:
    """Return what a comparison says about a claim.

    "Better" holds if the difference is significant after Holm's correction and positive, and does not hold if it is
    significant and negative. "Similar" holds if the 90 % confidence interval lies within `MARGIN` (two one-sided tests), and
    does not hold if the difference is significant.
    """
    if d.verdict == "incomplete":
        return INCOMPLETE
    if kind == "similar" and d.seeds > 1:
        reach = float(stats.t.ppf(1 - ALPHA, d.seeds - 1)) * d.error
        if abs(d.mean) + reach < MARGIN:
            return HOLDS
    if d.verdict == "inconclusive":
        return OPEN
    return HOLDS if kind == "better" and d.mean > 0 else FAILS


# --- comparisons of rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """Row ``second`` of the recipes is better than ``first``, or similar to it."""

    place: str
    text: str
    first: str
    second: str
    recipes: tuple[str, ...]
    kind: Literal["better", "similar"] = "better"
    selection: str = "last"

    def rows(self) -> Iterator[Row]:
        """Yield a row for each recipe that makes the comparison, and for each of its directions."""
        for name in self.recipes:
            recipe = lab.load_recipe(name)
            if not {self.first, self.second} <= set(recipe.rows):
                continue
            network = NETWORKS.get(recipe.settings["backbone"], recipe.settings["backbone"]) + SCHEDULES.get(name, "")
            study = lab.read_study(folders()[name]) if name in folders() else None
            if study is None or not {self.first, self.second} <= {planned.row for planned in study.plan}:
                paper = self._published(recipe.published)
                yield Row(self.place, self.text, network, paper, "-", ABSENT, f"`{name}`")
                continue
            parts = {where: finished(made) for where, made in comparison_parts(study, self.selection).items()}
            differences = compared(list(parts.values()), study.recipe.orders, study.recipe.contrasts)
            for (where, made), found in zip(parts.items(), differences, strict=True):
                if (d := self._difference(found)) is not None:
                    words = f"{network}, {where}".rstrip(": ,")
                    paper = self._published(study.recipe.published, where.rstrip(": "))
                    record = linked(folders()[name])
                    yield Row(self.place, self.text, words, paper, ours(d, made), verdict(d, self.kind), record, d)

    def _difference(self, found: Mapping[tuple[str, str], Difference]) -> Difference | None:
        if (d := found.get((self.first, self.second))) is not None:
            return d
        if (d := found.get((self.second, self.first))) is None:
            return None
        return replace(d, first=self.first, second=self.second, mean=-d.mean)

    def _published(self, lines: tuple[Published, ...], direction: str = "") -> str:
        """Return both published averages, or mAP by direction, and their difference; "-" if the paper has no numbers."""
        first, second = (_values(lines, row, self.selection) for row in (self.first, self.second))
        words = []
        for column in first.keys() & second.keys() if first != second else ():
            where, _, measure = column.rpartition(" ")
            if column == AVERAGE or (measure == "mAP" and where.startswith(direction)):
                change = f"{first[column]:.1f} → {second[column]:.1f} ({second[column] - first[column]:+.1f})"
                words.append(change if column == AVERAGE else f"{where}: mAP {change}")
        return "; ".join(sorted(words)) or "-"


def _values(lines: tuple[Published, ...], row: str, selection: str) -> dict[str, float]:
    """Return the paper's numbers of a row. Its EFDMix is that of the authors' code, so "-flow" rows share them."""
    for line in lines:
        if line.row in (row, row.removesuffix("-flow")) and line.selection == selection and "MixStyle" not in line.source:
            return {column: mean for column, (mean, _) in line.values.items()}
    return {}


def finished(made: Numbers) -> Numbers:
    """Return the numbers of complete seeds: an interrupted sweep is judged by the seeds that it finished."""
    wanted = {row: {column: list(made.averages(row)) for column in made.columns} for row in made.rows}
    return replace(made, wanted=wanted)


def ours(d: Difference, made: Numbers) -> str:
    """Return both averages with standard errors, and their difference with its error, p-value and number of seeds."""
    if d.verdict == "incomplete":
        return "no complete seed"
    p = "p < 0.001" if d.p_holm < 0.001 else f"p = {d.p_holm:.3f}"
    error = f" ± {d.error:.1f}, {p}" if d.seeds > 1 else ""
    both = " → ".join(_mean(list(made.averages(row).values())) for row in (d.first, d.second))
    return f"{both} ({d.mean:+.1f}{error}; {d.seeds} seeds)"


def _mean(values: list[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {standard_error(values):.1f}" if len(values) > 1 else mean


@cache
def folders() -> Mapping[str, Path]:
    """Return the folder of the committed records of each recipe."""
    found = {}
    for path in sorted(RESULTS.rglob("recipe.json")):
        found.setdefault(json.loads(path.read_text())["recipe"]["name"], path.parent)
    return found


def linked(folder: Path) -> str:
    name = folder.relative_to(RESULTS).as_posix()
    return f"[{name}](../results/{name}/README.md)"


LEAVE_ONE_OUT = (
    "pacs_leave_one_out_resnet18", "pacs_paper_schedule_resnet18", "pacs_leave_one_out_resnet50",
    "pacs_leave_one_out_mobilenetv2",
)  # fmt: skip
SINGLE_SOURCE = ("pacs_single_source_resnet18", "pacs_single_source_resnet50", "pacs_single_source_mobilenetv2")
ORDERS = ("pacs_order_study_resnet18", "pacs_order_study_mobilenetv2")
TIES = ("pacs_order_study_resnet18", "pacs_ties_mobilenetv2")
DOMAINBED = ("pacs_domainbed_resnet18",)
SCHEDULES = {"pacs_paper_schedule_resnet18": ", paper's schedule"}
STOP, FLOW = "EFDMix (stop)", "EFDMix (flow)"
ONE_OUT, ONE_IN, ON_BED = "Table 1, leave one out", "Table 1, single source", "Section 4.2, DomainBed"
FIGURE_9, FIGURE_10 = "Figure 9", "Figure 10"
REID = ("reid_market_grid_osnet", "reid_market_cuhk01_osnet", "reid_market_cuhk01_resnet18")
CLAIMS = (
    Claim(ONE_OUT, "MixStyle is better than ERM", "erm", "mixstyle", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"{STOP} is better than MixStyle", "mixstyle", "efdmix", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"{FLOW} is better than MixStyle", "mixstyle", "efdmix-flow", LEAVE_ONE_OUT),
    Claim(ONE_OUT, "with labels, MixStyle is better than ERM", "erm", "mixstyle-labels", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"with labels, {STOP} is better than MixStyle", "mixstyle-labels", "efdmix-labels", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"with labels, {FLOW} is better than MixStyle", "mixstyle-labels", "efdmix-labels-flow", LEAVE_ONE_OUT),
    *(
        Claim(ONE_OUT, f"{FLOW} is better than {name}", row, "efdmix-flow", LEAVE_ONE_OUT[:1])
        for row, name in {
            "mixup": "Mixup", "manifold-mixup": "Manifold Mixup", "cutmix": "CutMix", "cutout": "Cutout",
            "dropblock": "DropBlock",
        }.items()
    ),
    Claim(ONE_IN, "MixStyle is better than ERM", "erm", "mixstyle", SINGLE_SOURCE),
    Claim(ONE_IN, f"{STOP} is better than MixStyle", "mixstyle", "efdmix", SINGLE_SOURCE),
    Claim(ONE_IN, f"{FLOW} is better than MixStyle", "mixstyle", "efdmix-flow", SINGLE_SOURCE),
    Claim(ONE_IN, f"{FLOW} is better than ERM", "erm", "efdmix-flow", SINGLE_SOURCE[1:2]),
    Claim("authors' code", f"leave one out: {FLOW} is better than {STOP}", "efdmix", "efdmix-flow", LEAVE_ONE_OUT),
    Claim("authors' code", f"single source: {FLOW} is better than {STOP}", "efdmix", "efdmix-flow", SINGLE_SOURCE),
    *(
        Claim(ON_BED, f"{FLOW} is better than ERM, {rule}", "erm", "efdmix-flow", DOMAINBED, selection=rule)
        for rule in ("oracle", "training-domain validation", "leave-one-domain-out cross-validation")
    ),
    Claim("Table 2", "re-identification: MixStyle is better than the baseline", "erm", "mixstyle", REID),
    Claim("Table 2", f"re-identification: {STOP} is better than MixStyle", "mixstyle", "efdmix", REID),
    Claim("Table 2", f"re-identification: {FLOW} is better than MixStyle", "mixstyle", "efdmix-flow", REID),
    Claim(FIGURE_9, "means alone (AdaMean) help", "erm", "adamean", ORDERS),
    Claim(FIGURE_9, "standard deviations alone (AdaStd) help", "erm", "adastd", ORDERS),
    Claim(FIGURE_9, "AdaMean is slightly better than AdaStd", "adastd", "adamean", ORDERS),
    Claim(FIGURE_9, "AdaIN is better than AdaMean", "adamean", "mixstyle", ORDERS),
    Claim(FIGURE_9, "AdaIN is better than AdaStd", "adastd", "mixstyle", ORDERS),
    Claim(FIGURE_9, "EFDM (stop) is better than AdaIN", "mixstyle", "efdmix", ORDERS),
    Claim(FIGURE_9, "EFDM is better than histogram matching", "hm", "efdmix", ORDERS),
    Claim(FIGURE_9, "AdaIN is better than histogram matching", "hm", "mixstyle", ORDERS),
    Claim(FIGURE_10, "random order of equal values: similar accuracy", "efdmix", "efdmix-random", TIES, "similar"),
    Claim(FIGURE_10, "order by neighbours: similar accuracy", "efdmix", "efdmix-neighbor", TIES, "similar"),
    Claim(
        "Section 3.2", "mixing (EFDMix) is better than exchanging distributions (EFDM)", "exchange", "efdmix-flow",
        ("pacs_ablation_resnet18",),
    ),
)  # fmt: skip


# --- single source and leave one out ---------------------------------------------------------------------------------


def larger_gain(single: str, several: str, network: str) -> Row:
    """Return the row that compares the gain of EFDMix over MixStyle with one and with three training domains.

    The seeds of the two tables are independent, so the test is Welch's t-test.
    """
    text = f"{FLOW} gains more over MixStyle with one training domain than with three"
    paper = "+0.8 → +2.7"
    if not {single, several} <= set(folders()):
        return Row("Section 4.2", text, network, paper, "-", ABSENT, f"`{several}`, `{single}`")
    gains = []
    for name in (several, single):
        (made,) = comparison_parts(lab.read_study(folders()[name]), "last").values()
        both = [made.averages(row) for row in ("mixstyle", "efdmix-flow")]
        gains.append([both[1][seed] - both[0][seed] for seed in both[0] if seed in both[1]])
    before, after = gains
    record = f"{linked(folders()[several])}, {linked(folders()[single])}"
    if min(map(len, gains)) < 2:
        return Row("Section 4.2", text, network, paper, "-", INCOMPLETE, record)
    p = float(stats.ttest_ind(after, before, equal_var=False).pvalue)
    more = statistics.fmean(after) > statistics.fmean(before)
    said = OPEN if p >= ALPHA else HOLDS if more else FAILS
    ours = f"{_signed(before)} → {_signed(after)} (p = {p:.3f}; {len(after)} seeds)"
    return Row("Section 4.2", text, network, paper, ours, said, record)


def _signed(values: list[float]) -> str:
    return f"{statistics.fmean(values):+.1f} ± {standard_error(values):.1f}"


# --- figures ---------------------------------------------------------------------------------------------------------


def of_histogram(content: dict[str, Any]) -> tuple[str, bool]:
    found = [domain["median_over_channels"]["kurtosis"] for domain in content["domains"].values()]
    return f"kurtosis of the median channel {min(found):.1f} to {max(found):.1f}", all(abs(k - 3) > 0.5 for k in found)


def of_pictures(content: dict[str, Any]) -> tuple[str, bool]:
    (percent,) = (row["percent"] for row in content["rows"] if row["stage"] == "pictures")
    return f"{percent:.1f} %", percent > 95


def _shares(content: dict[str, Any], activation: str) -> dict[str, float]:
    """Return the percent of equal values of the activations, by stage, in float32."""
    rows = [row for row in content["rows"] if row["activation"] == activation and row["precision"] == "fp32"]
    inner = {row["stage"]: row["percent"] for row in rows if row["at"] == "activation"}
    return {row["stage"]: inner.get(row["stage"], row["percent"]) for row in rows if row["at"] == "output"}


def of_activations(content: dict[str, Any]) -> tuple[str, bool]:
    own, other = _shares(content, "own"), _shares(content, "prelu")
    words = "; ".join(f"{stage} {own[stage]:.0f} and {other[stage]:.0f} %" for stage in own)
    return words, all(own[stage] > other[stage] for stage in own)


def of_depth(content: dict[str, Any], activation: str = "own") -> tuple[str, bool]:
    found = _shares(content, activation).values()
    return ", ".join(f"{share:.0f} %" for share in found), all(a >= b for a, b in pairwise(found))


def of_skewness(content: dict[str, Any]) -> tuple[str, bool]:
    found, chance = content["accuracy"]["skewness"], content["chance"]
    words = f"a linear probe predicts the domain with {100 * found['mean']:.0f} % (chance {100 * chance:.0f} %)"
    return words, found["mean"] - 2 * found["std_over_folds"] > chance


FEATURES = {"ResNet-18": "pacs-resnet18/features/erm", "MobileNetV2": "pacs/features/erm"}
FIGURES: tuple[tuple[str, str, str, Callable[[dict[str, Any]], tuple[str, bool]]], ...] = (
    ("Figure 1", "features of a channel are not Gaussian (kurtosis 3)", "histogram", of_histogram),
    ("Figure 3", "nearly all values of a picture occur more than once", "ties", of_pictures),
    ("Figure 3", "ReLU gives more equal values than PReLU", "ties", of_activations),
    ("Figure 3", "with ReLU, the share of equal values decreases with depth", "ties", of_depth),
    (
        "Figure 3",
        "with PReLU, the share of equal values decreases with depth",
        "ties",
        partial(of_depth, activation="prelu"),
    ),
    ("Figure 4", "skewness separates the domains", "tsne", of_skewness),
)


def of_figures() -> Iterator[Row]:
    """Yield the claims that are checked on one model, without repetitions: they hold or do not hold."""
    for place, text, analysis, says in FIGURES:
        for network, name in FEATURES.items():
            path = RESULTS / name / f"{analysis}.json"
            if not path.is_file():
                yield Row(place, text, network, "figure", "-", ABSENT, f"`efdm dg analyse {analysis}`")
                continue
            words, holds = says(json.loads(path.read_text()))
            folder = path.parent.parent
            yield Row(place, text, network, "figure", words, HOLDS if holds else FAILS, linked(folder))


# --- table -----------------------------------------------------------------------------------------------------------


def rows() -> list[Row]:
    """Return all rows in the order of the document."""
    gains = (
        larger_gain(single, several, network)
        for single, several, network in zip(
            SINGLE_SOURCE[::2], LEAVE_ONE_OUT[::3], ("ResNet-18", "MobileNetV2"), strict=True
        )
    )
    return [*of_figures(), *(row for claim in CLAIMS for row in claim.rows()), *gains]


def reproduction_table() -> str:
    """Return the table; place and claim are printed once for all networks."""
    head, lines, before = ["in the paper", "claim", "network", "paper", "here", "verdict", "record"], [], ("", "")
    for row in rows():
        lines.append(["", "", *row[2:-1]] if row[:2] == before else list(row[:-1]))
        before = row[:2]
    return markdown(head, lines)


def agreement(a: Difference, b: Difference) -> str:
    """Return whether two networks agree: no if their differences differ significantly (t-test, p < 0.05)."""
    error = math.hypot(a.error, b.error)
    reach = float(stats.t.ppf(1 - ALPHA / 2, min(a.seeds, b.seeds) - 1)) * error
    if abs(a.mean - b.mean) > reach:
        return "**no**"
    return "yes" if a.mean * b.mean > 0 else "not contradicted"


def networks_table() -> str:
    """Return the differences that were measured with both networks, and whether they agree."""
    found: dict[tuple[str, str], dict[str, Difference]] = {}
    for row in rows():
        if row.difference is not None and row.difference.seeds > 1:
            found.setdefault((row.place, row.claim), {})[row.network] = row.difference
    lines = []
    for (place, claim), by_network in found.items():
        if set(BOTH) <= set(by_network):
            a, b = (by_network[network] for network in BOTH)
            lines.append([place, claim, *(f"{d.mean:+.1f} ± {d.error:.1f}" for d in (a, b)), agreement(a, b)])
    return markdown(["in the paper", "claim", *BOTH, "agree"], lines)


BOTH = ("ResNet-18", "MobileNetV2")
TABLES = (
    Table(PAGE, "reproduction table", "reproduction.py", reproduction_table),
    Table(PAGE, "networks table", "reproduction.py", networks_table),
)


if __name__ == "__main__":
    if parse_update_flag(__doc__):
        update_documents(TABLES)
    print(reproduction_table())
