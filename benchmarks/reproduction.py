"""Render the tables of docs/reproduction.md: the paper's claims and what the committed records say about them.

python benchmarks/reproduction.py            print the tables
python benchmarks/reproduction.py --readme   update them in the document
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from claims import CLAIMS, GAIN, NETWORKS, SECTIONS, VARIANTS, Claim
from documents import ROOT, Table, main, markdown
from records import read_record
from scipy import stats

from efdm import efdmix, lab, mixstyle
from efdm.lab.compare import ALPHA, MIN_SEEDS, Difference, compared, compared_pairs, comparison_parts, holm, p_text
from efdm.lab.published import AVERAGE, Published
from efdm.lab.results import Numbers
from efdm.stats import standard_error, with_error
from efdm.text import plural

PAGE = ROOT / "docs" / "reproduction.md"
RESULTS = ROOT / "results"
HOLDS, FAILS, OPEN, INCOMPLETE, ABSENT = "**holds**", "**does not hold**", "inconclusive", "incomplete", "not run"
MARGIN = 1.0  # percentage points: smaller differences count as similar
BOTH = {"ResNet-18": "resnet18", "MobileNetV2": "mobilenetv2"}  # network -> end of the names of its recipes


class Row(NamedTuple):
    place: str
    claim: str
    network: str
    paper: str
    ours: str
    verdict: str
    record: str = ""  # the target of the network's link; the tables of style_report.py have a column for it
    difference: Difference | None = None  # not printed


def verdict(d: Difference, kind: Literal["better", "similar"] = "better") -> str:
    """Return what a comparison says about a claim.

    "Better" holds if the difference is significant after Holm's correction and positive, and does not hold if it is
    significant and negative. "Similar" holds if the 90 % confidence interval lies within `MARGIN` (two one-sided tests), and
    does not hold if the difference is significant. Both need `MIN_SEEDS` seeds.
    """
    if d.verdict == "incomplete":
        return INCOMPLETE
    if kind == "similar" and d.seeds >= MIN_SEEDS:
        half_width = float(stats.t.ppf(1 - ALPHA, d.seeds - 1)) * d.error
        if abs(d.mean) + half_width < MARGIN:
            return HOLDS
    if d.verdict == "inconclusive":
        return OPEN
    return HOLDS if kind == "better" and d.mean > 0 else FAILS


def claim_rows(claim: Claim) -> Iterator[Row]:
    """Yield a row for each recipe that makes the comparison, and for each of its directions.

    A comparison that the recipe does not make but the paper has numbers for was not run.
    """
    pair = {claim.first, claim.second}
    for name in claim.recipes:
        recipe = lab.load_recipe(name)
        compares = pair in map(set, compared_pairs(recipe.orders, recipe.contrasts))
        paper = published(claim, recipe.published)
        if not compares and (claim.paper or paper == "-"):
            continue
        network = NETWORKS.get(recipe.settings["backbone"], recipe.settings["backbone"]) + VARIANTS.get(name, "")
        study = lab.read_study(folders()[name]) if compares and name in folders() else None
        if study is None or not pair <= {planned.row for planned in study.plan}:
            yield Row(claim.place, claim.text, network, paper, f"`{name}`" if pair <= set(recipe.rows) else "-", ABSENT)
            continue
        parts = {where: finished(part) for where, part in comparison_parts(study, claim.selection).items()}
        for where, found in compared(parts, study.recipe.orders, study.recipe.contrasts).items():
            if (d := found.get((claim.first, claim.second)) or reverse(found.get((claim.second, claim.first)))) is not None:
                words = ", ".join(filter(None, [network, where]))
                paper = published(claim, study.recipe.published, where)
                record = page_of(folders()[name])
                here = measured(d, parts[where])
                yield Row(claim.place, claim.text, words, paper, here, verdict(d, claim.kind), record, d)


def reverse(d: Difference | None) -> Difference | None:
    return d and replace(d, first=d.second, second=d.first, mean=-d.mean)


def published(claim: Claim, lines: tuple[Published, ...], direction: str = "") -> str:
    """Return both published averages, or mAP by direction, and their difference; "-" if the paper has no numbers."""
    if claim.paper:
        return claim.paper
    first, second = (_values(lines, row, claim.selection) for row in (claim.first, claim.second))
    words = []
    for column in first.keys() & second.keys() if first != second else ():
        where, _, measure = column.rpartition(" ")
        if column == AVERAGE or (measure == "mAP" and where.startswith(direction)):
            change = f"{first[column]:.1f} → {second[column]:.1f} ({second[column] - first[column]:+.1f})"
            words.append(change if column == AVERAGE else f"{where}: mAP {change}")
    return "; ".join(sorted(words)) or "-"


def _values(lines: tuple[Published, ...], row: str, selection: str) -> dict[str, float]:
    """Return the paper's numbers of a row. Both forms of EFDMix share them, with and without the gradient of its code."""
    plain = row.removesuffix("-flow")
    same = (plain, f"{plain}-flow") if row.startswith("efdmix") else (row,)
    for line in lines:
        if line.row in same and line.selection == selection and "MixStyle" not in line.source:
            return {column: mean for column, (mean, _) in line.values.items()}
    return {}


def finished(numbers: Numbers) -> Numbers:
    """Return the numbers of complete seeds: an interrupted sweep is judged by the seeds that it finished."""
    seeds = {row: {column: list(numbers.averages(row)) for column in numbers.columns} for row in numbers.rows}
    return replace(numbers, seeds=seeds)


def measured(d: Difference, numbers: Numbers) -> str:
    """Return both averages with standard errors, and their difference with its error, p-value and number of seeds."""
    if d.verdict == "incomplete":
        return "no complete seed"
    both = " → ".join(mean_with_error(list(numbers.averages(row).values())) for row in (d.first, d.second))
    tested = f", {p_text(d.p_holm)}" if d.seeds > 1 else ""
    return f"{both} ({with_error(d.mean, d.error, '+.1f')}{tested}; {plural(d.seeds, 'seed')})"


def mean_with_error(values: list[float], form: str = ".1f") -> str:
    return with_error(statistics.fmean(values), standard_error(values), form)


@cache
def folders() -> Mapping[str, Path]:
    """Return the folder of the committed records of each recipe."""
    paths = sorted(RESULTS.rglob("recipe.json"), reverse=True)  # the first folder of a recipe overrides the others
    return {json.loads(path.read_text())["recipe"]["name"]: path.parent for path in paths}


def page_of(folder: Path) -> str:
    return f"../results/{folder.relative_to(RESULTS).as_posix()}/README.md"


def gain_row(single: str, several: str, network: str) -> Row:
    """Return the row that compares the gain of EFDMix over MixStyle with one and with three training domains.

    The seeds of the two tables are independent, so the test is Welch's t-test.
    """
    row = Row("Section 4.2", GAIN, network, "+0.8 → +2.7", f"`{several}`, `{single}`", ABSENT)
    if not {single, several} <= set(folders()):
        return row
    both = [folders()[name] for name in (several, single)]
    links = ", ".join(f"[{folder.relative_to(RESULTS).as_posix()}]({page_of(folder)})" for folder in both)
    row = row._replace(ours=links, verdict=INCOMPLETE)
    gains = []
    for folder in both:
        (numbers,) = comparison_parts(lab.read_study(folder), "last").values()
        before, after = (numbers.averages(method) for method in ("mixstyle", "efdmix-flow"))
        gains.append([after[seed] - before[seed] for seed in before if seed in after])
    if min(map(len, gains)) < 2:
        return row
    test = stats.ttest_ind(*gains[::-1], equal_var=False)
    change = " → ".join(mean_with_error(gain, "+.1f") for gain in gains)
    result = OPEN if test.pvalue >= ALPHA else HOLDS if test.statistic > 0 else FAILS
    return row._replace(ours=f"{change} ({p_text(test.pvalue)}; {len(gains[1])} seeds); {links}", verdict=result)


def not_gaussian(content: dict[str, Any]) -> tuple[str, bool]:
    kurtosis = [domain["median_over_channels"]["kurtosis"] for domain in content["domains"].values()]
    words = f"kurtosis of the median channel {min(kurtosis):.1f} to {max(kurtosis):.1f}"
    return words, all(abs(k - 3) > 0.5 for k in kurtosis)


def equal_in_pictures(content: dict[str, Any]) -> tuple[str, bool]:
    (percent,) = (row["percent"] for row in content["rows"] if row["stage"] == "pictures")
    return f"{percent:.1f} %", percent > 95


def _shares(content: dict[str, Any], activation: str) -> dict[str, float]:
    """Return the percent of equal values of the activations, by stage, in float32."""
    rows = [row for row in content["rows"] if row["activation"] == activation and row["precision"] == "fp32"]
    inner = {row["stage"]: row["percent"] for row in rows if row["at"] == "activation"}
    return {row["stage"]: inner.get(row["stage"], row["percent"]) for row in rows if row["at"] == "output"}


def fewer_with_prelu(content: dict[str, Any]) -> tuple[str, bool]:
    relu, prelu = _shares(content, "own"), _shares(content, "prelu")
    words = "; ".join(f"{stage} {relu[stage]:.0f} and {prelu[stage]:.0f} %" for stage in relu)
    return words, all(relu[stage] > prelu[stage] for stage in relu)


def decreasing(content: dict[str, Any], key: str) -> tuple[str, bool]:
    shares = _shares(content, key).values()
    return ", ".join(f"{share:.0f} %" for share in shares), all(a >= b for a, b in pairwise(shares))


def separates_domains(content: dict[str, Any], statistic: str) -> tuple[str, bool]:
    accuracy, chance = content["accuracy"][statistic], content["chance"]
    words = f"a linear probe predicts the domain with {100 * accuracy['mean']:.0f} % (chance {100 * chance:.0f} %)"
    return words, accuracy["mean"] - 2 * accuracy["std_over_folds"] > chance


FEATURES = {"ResNet-18": "pacs-resnet18/features/erm", "MobileNetV2": "pacs/features/erm"}
# place, claim, analysis, and the check of its numbers, which returns them in words and whether the claim holds
FIGURES: tuple[tuple[str, str, str, Callable[[dict[str, Any]], tuple[str, bool]]], ...] = (
    ("Figure 1", "features of a channel are not Gaussian (kurtosis 3)", "histogram", not_gaussian),
    ("Figure 3", "nearly all values of a picture occur more than once", "ties", equal_in_pictures),
    ("Figure 3", "ReLU gives more equal values than PReLU", "ties", fewer_with_prelu),
    ("Figure 3", "with ReLU, the share of equal values decreases with depth", "ties", partial(decreasing, key="own")),
    ("Figure 3", "with PReLU, the share of equal values decreases with depth", "ties", partial(decreasing, key="prelu")),
    *(
        ("Figure 4", f"{name.replace('_', ' ')} separates the domains", "tsne", partial(separates_domains, statistic=name))
        for name in ("skewness", "kurtosis", "infinity_norm")
    ),
)


def analysed(path: Path) -> dict[str, Any]:
    """Return the numbers of an analysis. Shares with PReLU are those of a network trained with it, if it was analysed."""
    content: dict[str, Any] = json.loads(path.read_text())
    trained = path.parents[1] / "prelu" / path.name
    if content["analysis"] == "ties" and trained.exists():
        rows = [{**row, "activation": "prelu"} for row in json.loads(trained.read_text())["rows"] if row["activation"]]
        content["rows"] = [row for row in content["rows"] if row["activation"] != "prelu"] + rows
    return content


def figure_rows() -> Iterator[Row]:
    """Yield the claims that are checked on one model, without repetitions: they hold or do not hold."""
    for place, text, analysis, check in FIGURES:
        for network, name in FEATURES.items():
            path = RESULTS / name / f"{analysis}.json"
            words, holds = check(analysed(path))
            yield Row(place, text, network, "figure", words, HOLDS if holds else FAILS, page_of(path.parents[1]))


def diversity_row() -> Row:
    """Return the row that augments one content with a skewed style and with its mirror image, which has the same moments."""
    ranks = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    content, style = (2 * math.pi * ranks).sin().view(1, 1, -1), -ranks.log().view(1, 1, -1)
    styles = style, 2 * style.mean() - style
    changes = {}
    for name, mix in {"MixStyle": mixstyle, "EFDMix": efdmix}.items():
        one, other = (mix(content, y, lam=0.5) for y in styles)
        changes[name] = float((one - other).abs().max() / style.std())
    words = " and ".join(f"{change:.2f} ({name})" for name, change in changes.items())
    holds = changes["MixStyle"] < 1e-6 < 0.01 < changes["EFDMix"]
    text = "styles of equal mean and standard deviation give different augmentations with EFDMix, equal ones with MixStyle"
    here = f"a skewed style and its mirror image, weight 0.5: up to {words} standard deviations apart"
    return Row("Section 3.2", text, "none, computed", "-", here, HOLDS if holds else FAILS)


def time_row() -> Row:
    """Return the row that compares the times of a training step on a GPU."""
    (step,) = read_record("dg-cuda.json")["steps"]
    times = {name: time["median_ms"] for name, time in step["times"].items()}
    mix, stop, flow, sorts = (times[name] for name in ("mixstyle", "efdmix", "efdmix-flow", "three_sort"))
    words = f"{mix:.2f} → {stop:.2f} (stop) and {flow:.2f} ms (flow); with the paper's pseudo-code {sorts:.2f} ms"
    result = HOLDS if max(stop, flow) <= 1.05 * mix else FAILS
    claim = "EFDMix takes about as long as MixStyle (a training step at most 5 % longer)"
    return Row("Section 4.3", claim, "ResNet-18, H200", "-", words, result, "../benchmarks/results/dg-cuda.json")


@cache
def rows() -> tuple[Row, ...]:
    """Return all rows in the order of the document."""
    gains = (gain_row(f"pacs_single_source_{name}", f"pacs_leave_one_out_{name}", network) for network, name in BOTH.items())
    claimed = (row for claim in CLAIMS for row in claim_rows(claim))
    return (*figure_rows(), *claimed, diversity_row(), *gains, time_row())


def reproduction_table() -> str:
    """Return a table for each of `SECTIONS`; a claim is printed once for all networks."""
    sections = []
    for heading, places in SECTIONS.items():
        lines, before = [], ("", "")
        for row in (row for row in rows() if row.place in places):
            claim = f"{row.place}: {row.claim}" if len(places) > 1 else row.claim
            network = f"[{row.network}]({row.record})" if row.record else row.network
            lines.append(["" if row[:2] == before else claim, network, row.paper, row.ours, row.verdict])
            before = row[:2]
        sections.append(f"### {heading}\n\n{markdown(['claim', 'network', 'paper', 'here', 'verdict'], lines)}")
    return "\n\n".join(sections)


def summary() -> str:
    """Return how many rows have each verdict."""
    verdicts = Counter(row.verdict for row in rows())
    untested = sum(row.verdict == HOLDS and row.difference is None for row in rows())
    counts = ", ".join(f"{verdicts[name]} {name}" for name in (HOLDS, FAILS, OPEN, INCOMPLETE, ABSENT) if verdicts[name])
    note = f"Of those that hold, {untested} are observations on one model, computations or times, without a test over seeds."
    return f"Domain generalization and re-identification, {verdicts.total()} rows: {counts}. {note}"


def single_correction(judged: Sequence[Row]) -> str:
    """Return which differences would no longer be significant with one correction for all comparisons with ResNet-18.

    A comparison whose runs appear in two tables counts once, with the p-value of the first.
    """
    unique: dict[tuple[str, str, float], tuple[Row, Difference]] = {}
    for row in judged:
        if (d := row.difference) is not None and row.network.startswith("ResNet-18"):
            unique.setdefault((d.first, d.second, d.mean), (row, d))
    corrected = zip(unique.values(), holm(d for _, d in unique.values()), strict=True)
    significant = [(row, together) for (row, alone), together in corrected if alone.verdict == "significant"]
    lost = [(row, d.p_holm) for row, d in significant if d.verdict != "significant"]
    lines = [f"- {row.place}, {row.network}: {row.claim} ({p_text(p)})" for row, p in lost]
    kept = f"{len(significant) - len(lost)} of the {len(significant)} significant differences would remain"
    start = f"With one correction for all {len(unique)} comparisons with ResNet-18 below, {kept}"
    return "\n".join([f"{start}. These would not:", "", *lines] if lost else [f"{start}."])


def agreement(a: Difference, b: Difference) -> str:
    """Return whether two networks agree: no if their differences differ significantly (Welch's t-test, p < 0.05)."""
    samples = [(d.mean, d.error * math.sqrt(d.seeds), d.seeds) for d in (a, b)]
    p = float(stats.ttest_ind_from_stats(*samples[0], *samples[1], equal_var=False).pvalue)
    if p < ALPHA:
        return f"**no** ({p_text(p)})"
    return "yes" if a.mean * b.mean > 0 else "not contradicted"


def networks_table(*networks: str) -> str:
    """Return the differences that were measured with both of two networks, and whether they agree."""
    by_claim: dict[tuple[str, str], dict[str, Difference]] = {}
    for row in rows():
        if row.difference is not None and row.difference.seeds > 1:
            by_claim.setdefault((row.place, row.claim), {})[row.network] = row.difference
    lines = []
    for (place, claim), by_network in by_claim.items():
        if set(networks) <= set(by_network):
            a, b = (by_network[network] for network in networks)
            lines.append([place, claim, *(with_error(d.mean, d.error, "+.1f") for d in (a, b)), agreement(a, b)])
    return markdown(["in the paper", "claim", *networks, "agree"], lines)


TABLES = (
    Table(PAGE, "summary", "reproduction.py", summary),
    Table(PAGE, "single correction", "reproduction.py", lambda: single_correction(rows())),
    Table(PAGE, "reproduction table", "reproduction.py", reproduction_table),
    Table(PAGE, "networks table", "reproduction.py", partial(networks_table, *BOTH)),
    Table(PAGE, "PReLU table", "reproduction.py", partial(networks_table, "ResNet-18", "ResNet-18 with PReLU")),
    Table(PAGE, "ReLU table", "reproduction.py", partial(networks_table, "MobileNetV2", "MobileNetV2, mixed after ReLU")),
)


if __name__ == "__main__":
    main(TABLES, __doc__)
