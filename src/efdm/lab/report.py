"""Tables of the numbers. The same records give the same table, whatever their order."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from efdm.dg.protocols import PROTOCOLS
from efdm.lab.captions import chosen_sentences, facts, row_sentences, score_words
from efdm.lab.compare import (
    SEEDS,
    Difference,
    chains,
    contrast_sentence,
    difference,
    order_sentence,
    unjudged_sentences,
)
from efdm.lab.literature import AVERAGE, PUBLISHED_STD, Published, Value
from efdm.lab.results import Numbers, numbers, row_name, tabled
from efdm.lab.scores import STDS, VALIDATION, standard_error
from efdm.lab.selection import SELECTIONS
from efdm.lab.sweep import Study
from efdm.ops.choices import check_choice
from efdm.text import plural

MISSING = "-"
INCOMPLETE, DIFFER = "incomplete", "seeds differ"
ALIKE = 0.5  # percent points: about the standard error of an accuracy near 95 % of two thousand pictures


@dataclass(frozen=True)
class Table:
    title: str
    head: list[str]
    rows: list[list[str]]
    caption: list[str]  # sentences
    plain: list[list[str]] | None = None  # head and rows for programs, where they differ: bare numbers, or nothing


# --- main table ------------------------------------------------------------------------------------------------------


def accuracy_table(study: Study, selection: str = "last", score: str = "", std: str = "") -> Table:
    """A row for each method, a column for each domain and their average; published numbers stand under ours.

    The average is taken over the domains first, for every seed, and has its deviation over the seeds. A cell that lacks
    seeds says how many there are, with their mean, which is for the curious: CSV and comparisons leave it out.
    """
    recipe = study.recipe
    score, std = score or recipe.scores[0], std or recipe.std
    check_choice("std", std, STDS)
    made = numbers(study, selection, score)
    lines: list[tuple[str, str, str, list[Value | str]]] = []
    beside = [line for line in recipe.published if line.selection == selection and score == "pooled"]
    for row in made.rows:
        cells = [*(_cell(made, row, column, std) for column in made.columns), _average(made, row, std)]
        lines.append((row, "here", _seeds(made, row), cells))
        lines += [_published_line(line, made.columns) for line in beside if line.row == row]
    protocol, rule = PROTOCOLS[recipe.protocol], SELECTIONS[selection]
    scored = protocol.scored if rule.scored == "protocol" else rule.scored
    caption = [
        f"{recipe.data}, {recipe.protocol}: {protocol.about}. A column is the {_listed(recipe.listed)}.",
        f"Accuracy in %{score_words(study, score, scored)}.",
        f"Selection: {selection} ({rule.about}).",
        _spread_words(study, std),
        *(chosen_sentences(made) if recipe.grid and rule.among == "settings" else []),
        *row_sentences(study),
        *facts(study),
        *_published_note(study, beside, std),
        *recipe.notes,
    ]
    if study.missing:
        caption += [
            f"Incomplete: {len(study.missing)} of {len(study.plan)} trainings are still to be done.",
            "A number with (n of m) is the mean of the n seeds there are, of m that were asked for.",
        ]
    title = f"{recipe.name or recipe.data}: {selection}{_named(study, score)}"
    first, columns = ["method", "source", "seeds"], [*made.columns, AVERAGE]
    rows = [[row, source, seeds, *map(_shown, cells)] for row, source, seeds, cells in lines]
    plain = [[*first, *(f"{column} {what}" for column in columns for what in ("mean", STDS[std].short))]]
    for row, source, seeds, cells in lines:
        kind = std if source == "here" else PUBLISHED_STD
        parts = [part for cell in cells for part in _bare(cell, "told" if kind == std else "untold")]
        plain.append([row, source, seeds if seeds.isdigit() else "", *parts])
    return Table(title, [*first, *columns], rows, caption, plain)


def _listed(side: str) -> str:
    return {"test": "test domain", "train": "training domain"}[side]


def _named(study: Study, score: str) -> str:
    """A score's name, where there are others."""
    return "" if study.recipe.scores == ("pooled",) else f", {score}"


def _spread_words(study: Study, std: str) -> str:
    if len({planned.seed for planned in study.plan}) == 1:
        return "One seed; the average is over domains."
    return f"Mean ± {STDS[std].words} over seeds; the average is over domains first, within each seed."


def _seeds(made: Numbers, row: str) -> str:
    counts = sorted({len(seeds) for seeds in made.wanted[row].values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _cell(made: Numbers, row: str, column: str, std: str) -> Value | str:
    """A number, or what there is instead of it."""
    if column not in made.wanted[row]:
        return MISSING
    found, wanted = list(made.found[row][column].values()), len(made.wanted[row][column])
    return _of_seeds(found, wanted, std) if found else f"0 of {plural(wanted, 'seed')}"


def _average(made: Numbers, row: str, std: str) -> Value | str:
    if any(column not in made.wanted[row] for column in made.columns):
        return INCOMPLETE
    if len({tuple(seeds) for seeds in made.wanted[row].values()}) > 1:
        return DIFFER
    found, (wanted, *_) = list(made.averages(row).values()), made.wanted[row].values()
    return _of_seeds(found, len(wanted), std) if found else INCOMPLETE


def _of_seeds(values: Sequence[float], wanted: int, std: str) -> Value | str:
    mean = statistics.fmean(values)
    if len(values) < wanted:
        return f"{mean:.1f} ({len(values)} of {wanted})"
    return mean, STDS[std].of(values) if len(values) > 1 else None


def _shown(cell: Value | str) -> str:
    """For people: percent with one decimal; without a deviation where there is none."""
    if isinstance(cell, str):
        return cell
    mean, deviation = cell
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def _bare(cell: Value | str, deviations: str = "told") -> list[str]:
    """For programs: mean and deviation, each a number or nothing. One of another kind than the column's is "untold"."""
    if isinstance(cell, str):
        return ["", ""]
    mean, deviation = cell
    return [f"{mean:.4f}", "" if deviation is None or deviations == "untold" else f"{deviation:.4f}"]


def _published_line(line: Published, columns: Sequence[str]) -> tuple[str, str, str, list[Value | str]]:
    cells = [line.values.get(column, MISSING) for column in (*columns, AVERAGE)]
    if not line.values.keys() - {AVERAGE} <= set(columns):
        cells[-1] = MISSING  # an average over others
    return line.row, f"{line.backbone}, {line.source}", MISSING if line.seeds is None else str(line.seeds), cells


def _published_note(study: Study, beside: Sequence[Published], std: str) -> list[str]:
    ours = {_letters(str(planned.settings.get("backbone", ""))) for planned in study.plan}
    other = sorted({line.backbone for line in beside if _letters(line.backbone) not in ours})
    if not beside:
        return []
    of = f"another backbone ({', '.join(other)}) and stand there for orientation" if other else "the same backbone"
    deviations = any(deviation is not None for line in beside for _, deviation in line.values.values())
    after = [f"After their ± is the {STDS[PUBLISHED_STD].words}."] if deviations and std != PUBLISHED_STD else []
    return [f"Published numbers are of {of}.", *after]


def _letters(name: str) -> str:
    """ "ResNet-18" and timm's "resnet18.tv_in1k" are the same network."""
    return "".join(c for c in name.lower().partition(".")[0] if c.isalnum())


# --- comparisons and summary -------------------------------------------------------------------------------------------


def comparison_table(study: Study, selection: str = "last", score: str = "") -> Table:
    """Paired differences for the orders and contrasts of a recipe, and a sentence for each."""
    score = score or study.recipe.scores[0]
    made = numbers(study, selection, score)
    ordered = chains(made, study.recipe.orders)
    pairs = [(a, b) for a, b in study.recipe.contrasts if {a, b} <= set(made.rows)]
    contrasts = [difference(made, a, b) for a, b in pairs]
    listed = list({(d.first, d.second): d for d in [*(d for chain in ordered for d in chain), *contrasts]}.values())
    method = [
        f"Differences in percent points, {selection}{_named(study, score)}, paired by seed and domain.",
        "Error: standard error over seeds, each counted by its average over the domains. The verdict is taken from it "
        f"(Student's t, two-sided 95 %, at least {SEEDS} seeds). Error of pairs: over all pairs of seed and domain as if "
        "they were independent, which runs of one seed are not; for comparison only.",
        "The domains are taken as fixed: nothing is said of others. "
        f"Comparisons: {len(listed)}, each at 95 %; no correction for their number was made.",
    ]
    caption = [
        *(method if listed else []),
        *map(order_sentence, ordered),
        *map(contrast_sentence, contrasts),
        *unjudged_sentences(made, study.recipe.orders, study.recipe.contrasts),
    ]
    head = ["second - first", "difference", "error", "error of pairs", "seeds", "second better", "verdict", *made.columns]
    rows = [_difference_row(d, made.columns) for d in listed]
    return Table(f"{study.recipe.name or study.recipe.data}: comparisons, {selection}", head, rows, caption)


def _difference_row(d: Difference, columns: Sequence[str]) -> list[str]:
    name = f"{d.second} - {d.first}"
    if d.verdict == "incomplete":
        there = f"{d.pairs} of {d.asked} pairs"
        return [name, there, MISSING, MISSING, MISSING, MISSING, d.verdict, *[MISSING] * len(columns)]
    errors = [MISSING if math.isnan(e) else f"{e:.2f}" for e in (d.error, d.error_of_pairs)]
    by_column = [f"{d.by_column[c]:+.1f}" if c in d.by_column else MISSING for c in columns]
    return [name, f"{d.mean:+.2f}", *errors, str(d.seeds), f"{d.better} of {d.pairs}", d.verdict, *by_column]


def summary_table(study: Study, score: str = "", std: str = "") -> Table:
    """The averages alone, with a column for each selection rule: to be read down, not across."""
    recipe = study.recipe
    score, std = score or recipe.scores[0], std or recipe.std
    made = {name: numbers(study, name, score) for name in recipe.selections}
    rows = list(dict.fromkeys(row for each in made.values() for row in each.rows))
    cells = [[row, *(_shown(_average(made[s], row, std)) if row in made[s].rows else MISSING for s in made)] for row in rows]
    caption = [
        f"Averages over domains, accuracy in %{score_words(study, score)}.",
        _spread_words(study, std),
        "The columns look at different pictures: compare methods within a column.",
        *(f"{name}: {SELECTIONS[name].about}." for name in recipe.selections),
    ]
    return Table(f"{recipe.name or recipe.data}: selection rules", ["method", *made], cells, caption)


def best_row(study: Study, score: str = VALIDATION) -> str:
    """A sentence: which row is chosen by its average. For the choice of settings, which must not look at test domains.

    What lies within one standard error (over seeds) of the highest is as good, and then the smallest learning rate wins. A
    single seed has no such error; then what lies within `ALIKE` is.
    """
    made = numbers(study, "last", score)
    whole = {
        row: statistics.fmean(made.averages(row).values())
        for row in made.rows
        if not isinstance(_average(made, row, "error"), str)
    }
    if len(whole) < len(made.rows):
        return f"{len(made.rows) - len(whole)} of {len(made.rows)} rows are incomplete; nothing is chosen yet."
    best = max(whole, key=lambda row: whole[row])
    error = standard_error(list(made.averages(best).values()))
    rates = {row_name(planned): planned.settings["lr"] for planned in tabled(study)}
    near, words = (ALIKE, f"{ALIKE:g} percent points") if math.isnan(error) else (error, "that error")
    chosen = min((row for row in whole if whole[row] >= whole[best] - near), key=lambda row: rates[row])
    highest = f"Highest {score}: {best} ({whole[best]:.2f}{'' if math.isnan(error) else f' ± {error:.2f}, standard error'})."
    if chosen == best:
        return f"{highest} Chosen: {chosen}."
    return f"{highest} Chosen: {chosen} ({whole[chosen]:.2f}), the smallest learning rate within {words}."


def tables(study: Study, std: str = "") -> list[Table]:
    """Everything a recipe asks for: a table for each rule and score, the comparisons, and the rules side by side.

    What several tables have in common is said under the first of them.
    """
    recipe = study.recipe
    made = [accuracy_table(study, rule, score, std) for rule in recipe.selections for score in recipe.scores]
    if recipe.orders or recipe.contrasts:
        first, *others = recipe.selections
        rules = [first, *(rule for rule in others if rule == VALIDATION)]  # what is said, and whether it depends on the rule
        compared = [comparison_table(study, rule) for rule in rules]
        made += [table for table in compared if table.rows] or compared[:1]
    if len(recipe.selections) > 1:
        summary = summary_table(study, std=std)
        if not {cell for row in summary.rows for cell in row[1:]} <= {MISSING, INCOMPLETE, DIFFER}:
            made.append(summary)
    if VALIDATION in recipe.scores:
        made[0].caption.append(best_row(study))
    return _said_once(made)


def _said_once(made: Sequence[Table]) -> list[Table]:
    said, shorter = set[str](), []
    for table in made:
        new = [sentence for sentence in table.caption if sentence not in said]
        said.update(new)
        shorter.append(replace(table, caption=new if len(new) == len(table.caption) else [*new, "The rest is as above."]))
    return shorter
