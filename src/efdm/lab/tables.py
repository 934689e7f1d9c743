"""Tables of the numbers. The same records give the same table, whatever their order."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from efdm.dg.protocols import PROTOCOLS
from efdm.lab.compare import (
    SEEDS,
    Difference,
    chains,
    contrast_sentence,
    difference,
    order_sentence,
    unjudged_sentences,
)
from efdm.lab.published import AVERAGE, Published, Value
from efdm.lab.results import Numbers, numbers, row_name, tabled
from efdm.lab.run import Study
from efdm.lab.scores import STDS, standard_error
from efdm.lab.selection import SELECTIONS
from efdm.ops.choices import check_choice

MISSING = "-"
ALIKE = 0.5  # percent points: about the standard error of an accuracy near 95 % of two thousand pictures
# settings that a caption tells, and in which words
FACTS: Mapping[str, str] = {
    "backbone": "{}", "weights": "weights {}", "stages": "stages {}", "iterations": "{} iterations", "batch": "batch {}",
    "batches": "{} batches", "optimizer": "{}", "lr": "lr {}", "weight_decay": "weight decay {}",
    "schedule": "{} schedule", "augmentation": "augmentation {}", "size": "{} px", "batchnorm": "batch normalisation {}",
    "precision": "{}",
}  # fmt: skip


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
    seeds says how many there are and gives no number.
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
        f"Accuracy in %{_score_words(score, recipe.listed, scored)}.",
        f"Selection: {selection} ({rule.about}).",
        _spread_words(study, std),
        *facts(study),
        *_published_note(study, beside),
        *recipe.notes,
    ]
    if study.missing:
        caption.append(f"Incomplete: {len(study.missing)} of {len(study.plan)} trainings are still to be done.")
    title = f"{recipe.name or recipe.data}: {selection}{_named(study, score)}"
    first, columns = ["method", "source", "seeds"], [*made.columns, AVERAGE]
    rows = [[row, source, seeds, *map(_shown, cells)] for row, source, seeds, cells in lines]
    plain = [[*first, *(f"{column} {what}" for column in columns for what in ("mean", "std"))]]
    for row, source, seeds, cells in lines:
        plain.append([row, source, seeds if seeds.isdigit() else "", *(bare for cell in cells for bare in _bare(cell))])
    return Table(title, [*first, *columns], rows, caption, plain)


def _listed(side: str) -> str:
    return {"test": "test domain", "train": "training domain"}[side]


# which pictures of a test domain count
PICTURES: Mapping[str, tuple[str, str]] = {"all": ("all", ""), "rest": ("the", ", without those held out"), "": ("the", "")}


def _score_words(score: str, listed: str, scored: str = "") -> str:
    which, but = PICTURES[scored]
    return {
        "pooled": f" over {which} pictures of the test domain{'' if listed == 'test' else 's together'}{but}",
        "mean of domains": f" over {which} pictures of each test domain{but}; the mean of these accuracies",
        "training-domain validation": " on held-out pictures of the training domains; the test domains were not looked at",
    }[score]


def _named(study: Study, score: str) -> str:
    """A score's name, where there are others."""
    return "" if study.recipe.scores == ("pooled",) else f", {score}"


def _spread_words(study: Study, std: str) -> str:
    if len({planned.seed for planned in study.plan}) == 1:
        return "One seed; the average is over domains."
    return f"Mean ± {STDS[std][0]} over seeds; the average is over domains first, within each seed."


def _seeds(made: Numbers, row: str) -> str:
    counts = sorted({len(seeds) for seeds in made.wanted[row].values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _cell(made: Numbers, row: str, column: str, std: str) -> Value | str:
    """A number, or why there is none."""
    if column not in made.wanted[row]:
        return MISSING
    if not made.whole(row, column):
        return f"{len(made.found[row][column])} of {len(made.wanted[row][column])} seeds"
    return _spread(list(made.found[row][column].values()), std)


def _average(made: Numbers, row: str, std: str) -> Value | str:
    if all(column in made.wanted[row] for column in made.columns) and all(made.whole(row, c) for c in made.columns):
        if len({tuple(seeds) for seeds in made.wanted[row].values()}) == 1:
            return _spread(list(made.averages(row).values()), std)
        return "seeds differ"
    return "incomplete"


def _spread(values: Sequence[float], std: str) -> Value:
    return statistics.fmean(values), STDS[std][1](values) if len(values) > 1 else None


def _shown(cell: Value | str) -> str:
    """For people: percent with one decimal; without a deviation where there is none."""
    if isinstance(cell, str):
        return cell
    mean, deviation = cell
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def _bare(cell: Value | str) -> list[str]:
    """For programs: mean and deviation, each a number or nothing."""
    return ["", ""] if isinstance(cell, str) else ["" if part is None else f"{part:.4f}" for part in cell]


def _published_line(line: Published, columns: Sequence[str]) -> tuple[str, str, str, list[Value | str]]:
    cells = [line.values.get(column, MISSING) for column in (*columns, AVERAGE)]
    return line.row, f"{line.backbone}, {line.source}", MISSING if line.seeds is None else str(line.seeds), cells


def _published_note(study: Study, beside: Sequence[Published]) -> list[str]:
    ours = {_letters(str(planned.settings.get("backbone", ""))) for planned in study.plan}
    other = sorted({line.backbone for line in beside if _letters(line.backbone) not in ours})
    if not beside:
        return []
    if other:
        return [f"Published numbers are of another backbone ({', '.join(other)}) and stand there for orientation."]
    return ["Published numbers are of the same backbone."]


def _letters(name: str) -> str:
    """ "ResNet-18" and timm's "resnet18.tv_in1k" are the same network."""
    return "".join(c for c in name.lower().partition(".")[0] if c.isalnum())


# --- what the trainings had in common ---------------------------------------------------------------------------------


def facts(study: Study) -> list[str]:
    """A sentence of the settings that all trainings share, and one for each that some rows have otherwise."""
    shared, apart = [], []
    for name, words in FACTS.items():
        values = {row: _values(study, row, name) for row in study.recipe.rows}
        values = {row: told for row, told in values.items() if told}
        kinds = list(dict.fromkeys(values.values()))
        if len(kinds) == 1:
            shared.append(words.format(kinds[0]))
        elif kinds:
            told = "; ".join(
                f"{words.format(kind)} for {', '.join(r for r in values if values[r] == kind)}" for kind in kinds
            )
            apart.append(f"{name.replace('_', ' ').capitalize()}: {told}.")
    return [f"{', '.join(shared)}.", *apart] if shared else apart


def _values(study: Study, row: str, name: str) -> str:
    """A setting of a row in words; several, where its columns or its grid differ."""
    mine = {_word(p.settings[name]): p.settings[name] for p in tabled(study) if p.row == row and name in p.settings}
    if len(mine) > 2 and all(isinstance(v, int | float) for v in mine.values()):
        ordered = sorted(mine, key=lambda word: mine[word])
        return f"{ordered[0]} to {ordered[-1]}"
    return " or ".join(sorted(mine))


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


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
        f"Averages over domains, accuracy in %{_score_words(score, recipe.listed)}.",
        _spread_words(study, std),
        "The columns look at different pictures: compare methods within a column.",
        *(f"{name}: {SELECTIONS[name].about}." for name in recipe.selections),
    ]
    return Table(f"{recipe.name or recipe.data}: selection rules", ["method", *made], cells, caption)


def best_row(study: Study, score: str = "training-domain validation") -> str:
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
        made.append(comparison_table(study, recipe.selections[0]))
    if len(recipe.selections) > 1:
        made.append(summary_table(study, std=std))
    if "training-domain validation" in recipe.scores:
        made[0].caption.append(best_row(study))
    return _said_once(made)


def _said_once(made: Sequence[Table]) -> list[Table]:
    said, shorter = set[str](), []
    for table in made:
        new = [sentence for sentence in table.caption if sentence not in said]
        said.update(new)
        shorter.append(replace(table, caption=new if len(new) == len(table.caption) else [*new, "The rest is as above."]))
    return shorter
