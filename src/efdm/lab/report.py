"""Tables of a study. They do not depend on the order of the records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from efdm.lab.captions import accuracy_sentences, score_words, spread_words
from efdm.lab.compare import ALPHA, MIN_SEEDS, Difference, compared, comparison_parts, order_sentence, p_value
from efdm.lab.folder import Study
from efdm.lab.published import AVERAGE, PUBLISHED_SCORES, PUBLISHED_STD, Published, Value
from efdm.lab.recipe import Recipe
from efdm.lab.results import Numbers, numbers, reported_runs, row_name
from efdm.lab.selection import SELECTIONS, STDS, VALIDATION
from efdm.ops.choices import check_choice
from efdm.stats import standard_error, with_error
from efdm.text import plural

Line = tuple[str, str, str, list[Value | str]]  # row, source, seeds, and cells: numbers or the text to show instead
MISSING, INCOMPLETE, DIFFER = "-", "incomplete", "seeds differ"
TOLERANCE = 0.5  # percentage points: about the standard error of an accuracy near 95 % of two thousand pictures


@dataclass(frozen=True)
class Table:
    """A table of strings with a title and a caption, which is a list of sentences."""

    title: str
    head: list[str]
    rows: list[list[str]]
    caption: list[str]  # sentences
    csv: list[list[str]] | None = None  # head and rows for CSV, if they differ: numbers without text


def accuracy_table(study: Study, selection: str = "last", score: str = "", std: str = "") -> Table:
    """Return a table with a row per method, a column per domain and one for their average; published numbers follow ours.

    Averages are taken over the domains first, within each seed. A cell with missing seeds shows the mean and the number of
    the available seeds; CSV and comparisons omit such cells. A table of several scores has a column for each of them and no
    averages; it is the default for tables of directions.
    """
    recipe = study.recipe
    scores, std = (score,) if score else score_groups(recipe)[0], std or recipe.std
    check_choice("std", std, STDS)
    by_score = {score: numbers(study, selection, score) for score in scores}
    shown = by_score[scores[0]]
    published = [line for line in recipe.published if line.selection == selection and scores[0] in PUBLISHED_SCORES]
    columns = [*shown.columns, AVERAGE] if len(scores) == 1 else [f"{c} {score}" for c in shown.columns for score in scores]
    lines: list[Line] = []
    for row in shown.rows:
        cells = [_cell(by_score[score], row, column, std) for column in shown.columns for score in scores]
        cells += [_average(shown, row, std)] if len(scores) == 1 else []
        lines.append((row, "here", _seed_count(shown, row), cells))
        lines += [_published_line(line, columns) for line in published if line.row == row]
    head = ["method", "source", "seeds"]
    csv = [[*head, *(f"{column} {what}" for column in columns for what in ("mean", STDS[std].short))]]
    for row, source, seeds, cells in lines:
        parts = [part for cell in cells for part in _csv_cells(cell, source == "here" or std == PUBLISHED_STD)]
        csv.append([row, source, seeds if seeds.isdigit() else "", *parts])
    rows = [[row, source, seeds, *map(_text, cells)] for row, source, seeds, cells in lines]
    title = f"{recipe.name or recipe.data}: {selection}{_score_suffix(study, ', '.join(scores))}"
    caption = accuracy_sentences(study, shown, selection, scores[0], std, published)
    return Table(title, [*head, *columns], rows, caption, csv)


def score_groups(recipe: Recipe) -> list[tuple[str, ...]]:
    """Return the scores of each table. A table of directions has all scores and no averages over columns."""
    return [recipe.scores] if recipe.protocol_row.heading == "direction" else [(score,) for score in recipe.scores]


def _score_suffix(study: Study, score: str) -> str:
    """Return the score's name if the recipe has several."""
    return "" if study.recipe.scores == ("pooled",) else f", {score}"


def _seed_count(numbers: Numbers, row: str) -> str:
    counts = sorted({len(seeds) for seeds in numbers.seeds[row].values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _cell(numbers: Numbers, row: str, column: str, std: str) -> Value | str:
    """Return mean and spread, or the text to show instead."""
    if column not in numbers.seeds[row]:
        return MISSING
    scores, planned = list(numbers.scores[row][column].values()), len(numbers.seeds[row][column])
    return _mean_over_seeds(scores, planned, std) if scores else f"0 of {plural(planned, 'seed')}"


def _average(numbers: Numbers, row: str, std: str) -> Value | str:
    seeds = numbers.seeds[row]
    if any(column not in seeds for column in numbers.columns):
        return INCOMPLETE
    if len(set(map(tuple, seeds.values()))) > 1:
        return DIFFER
    averages, planned = list(numbers.averages(row).values()), len(seeds[numbers.columns[0]])
    return _mean_over_seeds(averages, planned, std) if averages else INCOMPLETE


def _mean_over_seeds(values: Sequence[float], planned: int, std: str) -> Value | str:
    mean = statistics.fmean(values)
    if len(values) < planned:
        return f"{mean:.1f} ({len(values)} of {planned})"
    return mean, STDS[std].of(values) if len(values) > 1 else None


def _text(cell: Value | str) -> str:
    return cell if isinstance(cell, str) else with_error(*cell)


def _csv_cells(cell: Value | str, with_spread: bool) -> list[str]:
    """Return mean and spread for CSV, each a number or empty."""
    if isinstance(cell, str):
        return ["", ""]
    mean, spread = cell
    return [f"{mean:.4f}", f"{spread:.4f}" if with_spread and spread is not None else ""]


def _published_line(line: Published, columns: Sequence[str]) -> Line:
    cells = [line.values.get(column, MISSING) for column in columns]
    if columns[-1] == AVERAGE and not line.values.keys() <= set(columns):
        cells[-1] = MISSING  # its average is over other columns
    return line.row, f"{line.backbone}, {line.source}", MISSING if line.seeds is None else str(line.seeds), cells


def comparison_table(study: Study, selection: str = "last", family: Literal["main", "separate"] = "main") -> Table:
    """Return the paired differences for the orders and contrasts of a recipe, with p-values corrected for their number.

    Rows of an order that were not selected are skipped: erm < mixstyle < efdmix compares efdmix with erm without mixstyle.
    ``family="separate"`` compares the ``separate_contrasts`` instead, whose p-values are corrected by themselves.
    """
    recipe = study.recipe
    if family == "separate":
        recipe = replace(recipe, orders=(), contrasts=recipe.separate_contrasts)
    parts = comparison_parts(study, selection)
    shown = next(iter(parts.values()))
    by_direction = recipe.protocol_row.heading == "direction"
    chains = [[row for row in chain if row in shown.rows] for chain in recipe.orders]
    by_part = compared(parts, chains, recipe.contrasts)
    by_prefix = {f"{part}: " if part else "": differences for part, differences in by_part.items()}
    count = sum(map(len, by_prefix.values()))
    missing = dict.fromkeys(row for rows in (*recipe.orders, *recipe.contrasts) for row in rows if row not in shown.rows)
    unit, of = ("direction", "") if by_direction else ("domain", " of the averages over domains")
    caption = [
        f"Differences in percentage points, {selection}{_score_suffix(study, recipe.scores[0])}, paired by seed and {unit}.",
        f"Error: standard error over seeds{of}. p: two-sided paired t-test over seeds. p (Holm): "
        f"corrected for the {plural(count, 'comparison')} of this table. "
        f"Significant: p (Holm) < {ALPHA} with at least {MIN_SEEDS} seeds.",
        f"The test treats the {unit}s as fixed, so its result does not extend to other {unit}s.",
    ]
    caption = caption if count else []
    caption += [
        prefix + order_sentence([differences[pair] for pair in pairwise(chain)])
        for prefix, differences in by_prefix.items()
        for chain in recipe.orders
        if set(chain) <= set(shown.rows)
    ]
    caption += [f"Some orders or contrasts are not compared, as rows are missing: {', '.join(missing)}."] if missing else []
    columns = [] if by_direction else shown.columns
    head = ["second - first", "difference", "error", "p", "p (Holm)", "verdict", "seeds", "second better", *columns]
    rows = [_difference_row(prefix, d, columns) for prefix, differences in by_prefix.items() for d in differences.values()]
    title = {"main": "comparisons", "separate": "separate comparisons"}[family]
    return Table(f"{recipe.name or recipe.data}: {title}, {selection}", head, rows, caption)


def _difference_row(prefix: str, d: Difference, columns: Sequence[str]) -> list[str]:
    name = prefix + d.name
    if d.verdict == "incomplete":
        return [name, f"{d.pairs} of {d.expected} pairs", *[MISSING] * 3, d.verdict, *[MISSING] * (2 + len(columns))]
    tested = [MISSING] * 3 if math.isnan(d.error) else [f"{d.error:.2f}", p_value(d.p), p_value(d.p_holm)]
    by_column = [f"{d.by_column[c]:+.1f}" if c in d.by_column else MISSING for c in columns]
    return [name, f"{d.mean:+.2f}", *tested, d.verdict, str(d.seeds), f"{d.better} of {d.pairs}", *by_column]


def summary_table(study: Study, std: str = "") -> Table:
    """Return the averages of the first score with a column per selection rule."""
    recipe, score = study.recipe, study.recipe.scores[0]
    std = std or recipe.std
    by_rule = {name: numbers(study, name, score) for name in recipe.selections}
    rows = list(dict.fromkeys(row for each in by_rule.values() for row in each.rows))
    cells = [[row, *(_text(_average(n, row, std)) if row in n.rows else MISSING for n in by_rule.values())] for row in rows]
    caption = [
        f"Averages over domains, accuracy in %{score_words(study, score)}.",
        spread_words(study, std),
        "Compare methods within a column: the rules use different pictures.",
        *(f"{name}: {SELECTIONS[name].about}." for name in recipe.selections),
    ]
    return Table(f"{recipe.name or recipe.data}: selection rules", ["method", *by_rule], cells, caption)


def best_row(study: Study) -> str:
    """Return a sentence that names the row chosen by its average validation accuracy. Test domains have no influence.

    Rows within one standard error of the highest (`TOLERANCE` with a single seed) count as equal. If their lengths differ,
    the highest of the shortest is chosen, otherwise the smallest learning rate.
    """
    validated = numbers(study, "last", VALIDATION)
    incomplete = sum(isinstance(_average(validated, row, "error"), str) for row in validated.rows)
    if incomplete:
        return f"No row is chosen: {incomplete} of {len(validated.rows)} rows are incomplete."
    means = {row: statistics.fmean(validated.averages(row).values()) for row in validated.rows}
    best = max(means, key=lambda row: means[row])
    error = standard_error(list(validated.averages(best).values()))
    lengths, rates = ({row_name(p): p.settings[name] for p in reported_runs(study)} for name in ("iterations", "lr"))
    margin, words = (TOLERANCE, f"{TOLERANCE:g} percentage points") if math.isnan(error) else (error, "one standard error")
    close = [row for row in means if means[row] >= means[best] - margin]
    if "iterations" in study.recipe.grid:
        what, chosen = "shortest schedule", min(close, key=lambda row: (lengths[row], -means[row]))
    else:
        what, chosen = "smallest learning rate", min(close, key=lambda row: rates[row])
    spread = "" if math.isnan(error) else ", standard error"
    highest = f"Highest {VALIDATION}: {best} ({with_error(means[best], error, '.2f')}{spread})."
    reason = "" if chosen == best else f" ({means[chosen]:.2f}), the {what} within {words}"
    return f"{highest} Chosen: {chosen}{reason}."


def tables(study: Study, std: str = "") -> list[Table]:
    """Return all tables of a recipe: one per rule and score, the comparisons of each rule, and the rules side by side.

    A sentence that several tables share is printed only under the first.
    """
    recipe = study.recipe
    made = [
        accuracy_table(study, rule, scores[0] if len(scores) == 1 else "", std)
        for rule in recipe.selections
        for scores in score_groups(recipe)
    ]
    if recipe.orders or recipe.contrasts:
        # without hyperparameters to choose, the oracle is the last step
        rules = [rule for rule in recipe.selections if rule != "oracle" or recipe.grid or recipe.draws]
        comparisons = [comparison_table(study, rule) for rule in rules or recipe.selections]
        made += [table for table in comparisons if table.rows] or comparisons[:1]
    if recipe.separate_contrasts and (separate := comparison_table(study, recipe.selections[0], family="separate")).rows:
        made.append(separate)
    if len(recipe.selections) > 1:
        summary = summary_table(study, std=std)
        if not {cell for row in summary.rows for cell in row[1:]} <= {MISSING, INCOMPLETE, DIFFER}:
            made.append(summary)
    if VALIDATION in recipe.scores:
        made[0].caption.append(best_row(study))
    return _without_repetition(made)


def _without_repetition(tables: Sequence[Table]) -> list[Table]:
    printed, shorter = set[str](), []
    for table in tables:
        new = [sentence for sentence in table.caption if sentence not in printed]
        printed.update(new)
        shorter.append(replace(table, caption=new if len(new) == len(table.caption) else [*new, "Otherwise as above."]))
    return shorter
