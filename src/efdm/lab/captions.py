"""Sentences under the tables: what the trainings had in common, what their rows are, and what a rule chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from efdm.dg.methods import METHODS
from efdm.lab.plan import display
from efdm.lab.results import Numbers, tabled
from efdm.lab.scores import VALIDATION
from efdm.lab.sweep import Study

# settings that a caption tells, and in which words
FACTS: Mapping[str, str] = {
    "backbone": "{}", "weights": "weights {}", "stages": "stages {}", "iterations": "{} iteration{s}", "batch": "batch {}",
    "batches": "{} batches", "optimizer": "{}", "lr": "lr {}", "weight_decay": "weight decay {}",
    "schedule": "{} schedule", "augmentation": "augmentation {}", "size": "{} px", "batchnorm": "batch normalisation {}",
    "precision": "{}",
}  # fmt: skip

# which pictures of a test domain count
PICTURES: Mapping[str, tuple[str, str]] = {
    "all": ("all", ""), "rest": ("the", ", without those held out"), "apart": ("the test", ", kept apart from the others"),
    "": ("the", ""),
}  # fmt: skip


def score_words(study: Study, score: str, scored: str = "") -> str:
    """Of what the accuracies in a table are, for the sentence that begins with them."""
    records = [record for same in study.runs.values() for record in same]
    apart, tested = ({domain for record in records for domain in record.get(key, ())} for key in ("official_test", "test"))
    some = f" (of {', '.join(sorted(apart))} the test pictures alone)" if apart else ""
    if some and apart == tested:
        scored, some = "apart", ""
    (which, but), several = PICTURES[scored], "" if study.recipe.listed == "test" else "s together"
    return {
        "pooled": f" over {which} pictures of the test domain{several}{but}{some}",
        "mean of domains": f" over {which} pictures of each test domain{but}{some}; the mean of these accuracies",
        VALIDATION: " on held-out pictures of the training domains; the test domains were not looked at",
    }[score]


def facts(study: Study) -> list[str]:
    """A sentence of the settings that all trainings share, and one for each that some rows have otherwise."""
    shared, apart = [], []
    for name, words in FACTS.items():
        values = {row: _values(study, row, name) for row in study.recipe.rows}
        values = {row: told for row, told in values.items() if told}
        kinds = list(dict.fromkeys(values.values()))
        if len(kinds) == 1:
            shared.append(_told(words, kinds[0]))
        elif kinds:
            told = "; ".join(
                f"{_told(words, kind)} for {', '.join(r for r in values if values[r] == kind)}" for kind in kinds
            )
            apart.append(f"{name.replace('_', ' ').capitalize()}: {told}.")
    return [f"{', '.join(shared)}.", *apart] if shared else apart


def _told(words: str, value: str) -> str:
    return words.format(value, s="" if value == "1" else "s")


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
    return f"{value:,}" if isinstance(value, int) else display(value)


def row_sentences(study: Study) -> list[str]:
    """A sentence for each row whose name does not say its method and options."""
    told: dict[str, dict[str, None]] = {}
    for planned in tabled(study):
        told.setdefault(planned.row, {})[_method(planned.settings)] = None
    return [f"{row}: {' or '.join(words)}." for row, words in told.items() if list(words) != [row]]


def _method(settings: Mapping[str, Any]) -> str:
    """A method, and its options where they are not the usual ones."""
    usual = METHODS[settings["method"]].options
    options = [f"{name}={value}" for name, value in settings.get("options", {}).items() if value != usual.get(name)]
    return ", ".join([settings["method"], *options])


def chosen_sentences(made: Numbers) -> list[str]:
    """For each row, which settings of the grid a rule chose: once where it is always the same, else by column."""
    told = []
    for row, by_column in made.chosen.items():
        counts = {column: Counter(by_column[column].values()) for column in made.columns if column in by_column}
        if len({hparams for count in counts.values() for hparams in count}) == 1:
            told.append(f"Chosen for {row}: {next(iter(next(iter(counts.values()))))} everywhere.")
        elif counts:
            told.append(f"Chosen for {row}: {'; '.join(f'{column} {_most(count)}' for column, count in counts.items())}.")
    return told


def _most(count: Counter[str]) -> str:
    """ "lr 0.01", or "lr 0.01 (2 of 3 seeds) or lr 0.1 (1 of 3 seeds)"."""
    ordered = sorted(count, key=lambda hparams: (-count[hparams], hparams))
    return ordered[0] if len(ordered) == 1 else " or ".join(f"{p} ({count[p]} of {count.total()} seeds)" for p in ordered)
