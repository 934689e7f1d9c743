"""Sentences under the tables: the data and the scores, common settings, the meaning of rows, chosen hyperparameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from efdm.lab.folder import Study
from efdm.lab.plan import display, hparam_grid
from efdm.lab.published import PUBLISHED_STD, Published
from efdm.lab.results import Numbers, reported_runs
from efdm.lab.selection import SELECTIONS, STDS, VALIDATION

# settings that captions mention, and their wording
SETTING_WORDS: Mapping[str, str] = {
    "backbone": "{}", "weights": "weights {}", "stages": "stages {}", "iterations": "iterations {}", "batch": "batch {}",
    "batches": "{} batches", "optimizer": "{}", "lr": "lr {}", "classifier_lr": "{} x lr for the classifier",
    "weight_decay": "weight decay {}", "label_smoothing": "label smoothing {}",
    "schedule": "{} schedule", "augmentation": "augmentation {}", "size": "{} px", "batchnorm": "batch normalization {}",
    "precision": "{}",
}  # fmt: skip

# scored part of the test domains -> which of their pictures, and the exception
SCORED_PICTURES: Mapping[str, tuple[str, str]] = {
    "all": ("all", ""), "rest": ("the", ", except those in the validation split"), "official": ("the official test", ""),
    "": ("the", ""),
}  # fmt: skip


def accuracy_sentences(
    study: Study, numbers: Numbers, selection: str, score: str, std: str, published: Sequence[Published]
) -> list[str]:
    """Return the caption of a table of accuracies or other scores, ``numbers``, with lines of ``published`` numbers."""
    recipe, protocol, rule = study.recipe, study.recipe.protocol_row, SELECTIONS[selection]
    columns = {"test": "test domain", "train": "training domain"}[protocol.columns]
    columns = "training data → test data" if protocol.heading == "direction" else columns
    finished = f"{len(study.plan) - len(study.missing)} of {len(study.plan)} runs have finished"
    return [
        f"{recipe.data}, {recipe.protocol}: {protocol.about}. Columns: {columns}.",
        *(
            recipe.task_row.score_sentences(study.plan)
            or [f"Accuracy in %{score_words(study, score, rule.scored or protocol.scored)}."]
        ),
        f"Selection: {selection} ({rule.about}).",
        spread_words(study, std),
        *(chosen_sentences(numbers) if (recipe.grid or recipe.draws) and rule.uses != "nothing" else []),
        *row_sentences(study),
        *setting_sentences(study),
        *_published_sentences(study, published, std),
        *recipe.notes,
        *([f"Incomplete: {finished}. (n of m) is the mean of n of m seeds."] if study.missing else []),
    ]


def score_words(study: Study, score: str, scored: str = "") -> str:
    """Return the words after "Accuracy in %" that say which pictures are scored."""
    records = [record for of_run in study.runs.values() for record in of_run]
    official, tested = ({d for record in records for d in record.get(key, ())} for key in ("official_test", "test"))
    note = f" (the official test pictures for {', '.join(sorted(official))})" if official else ""
    if official and official == tested:
        scored, note = "official", ""
    which, exception = SCORED_PICTURES[scored]
    domains = "domain" if study.recipe.protocol_row.columns == "test" else "domains together"
    return {
        "pooled": f" over {which} pictures of the test {domains}{exception}{note}",
        "mean of domains": f", the mean over test domains, each over {which} pictures{exception}{note}",
        VALIDATION: " on held-out pictures of the training domains",
    }[score]


def spread_words(study: Study, std: str) -> str:
    """Return a sentence on the spread after the ±, and on averages."""
    averages = study.recipe.protocol_row.heading == "domain"
    if len({planned.seed for planned in study.plan}) == 1:
        return "One seed; the average is over domains." if averages else "One seed."
    over = "; averages are over domains within each seed" if averages else ""
    return f"Mean ± {STDS[std].words} over seeds{over}."


def setting_sentences(study: Study) -> list[str]:
    """Return a sentence with the settings that all runs share, and one for each setting that differs between rows."""
    shared, differing = [], []
    for name, words in SETTING_WORDS.items():
        values = {row: value for row in study.recipe.rows if (value := _setting_text(study, row, name))}
        distinct = list(dict.fromkeys(values.values()))
        if len(distinct) == 1:
            shared.append(words.format(distinct[0]))
        elif distinct:
            by_value = (f"{value} for {', '.join(r for r in values if values[r] == value)}" for value in distinct)
            differing.append(f"{name.replace('_', ' ').capitalize()}: {'; '.join(by_value)}.")
    return [f"{', '.join(shared)}.", *differing] if shared else differing


def _setting_text(study: Study, row: str, name: str) -> str:
    """Return a row's value of a setting, or all its values if columns or the grid differ."""
    values = [p.settings[name] for p in reported_runs(study) if p.row == row and name in p.settings]
    by_text = {_value_text(value): value for value in values}
    if all(isinstance(value, int | float) for value in values):
        ordered = sorted(by_text, key=lambda text: by_text[text])
        return f"{ordered[0]} to {ordered[-1]}" if len(ordered) > 2 else " or ".join(ordered)
    return " or ".join(sorted(by_text))


def _value_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return (" x " if all(isinstance(part, int) for part in value) else " ").join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else display(value)


def row_sentences(study: Study) -> list[str]:
    """Return a sentence for each row whose name is not its method with default options, or those of the first draw."""
    first = next(iter(hparam_grid(study.recipe)))
    rows = {
        p.row: _method_text(p.settings, study.recipe.task_row.methods) for p in reported_runs(study) if p.hparams == first
    }
    return [f"{row}: {words}." for row, words in rows.items() if words != row]


def _method_text(settings: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
    """Return the method and those of its options that differ from the defaults."""
    defaults = methods[settings["method"]].options
    options = [f"{name}={value}" for name, value in settings.get("options", {}).items() if value != defaults.get(name)]
    return ", ".join([settings["method"], *options])


def chosen_sentences(numbers: Numbers) -> list[str]:
    """Return the hyperparameters that the rule chose for each row: once if equal everywhere, else by column."""
    sentences = []
    for row, by_column in numbers.chosen.items():
        counts = {column: Counter(by_column[column].values()) for column in numbers.columns if column in by_column}
        if len({hparams for count in counts.values() for hparams in count}) == 1:
            sentences.append(f"Chosen for {row}: {next(iter(next(iter(counts.values()))))} everywhere.")
        elif counts:
            listed = "; ".join(f"{column} {_by_frequency(count)}" for column, count in counts.items())
            sentences.append(f"Chosen for {row}: {listed}.")
    return sentences


def _by_frequency(count: Counter[str]) -> str:
    """Return "lr 0.01", or "lr 0.01 (2 of 3 seeds) or lr 0.1 (1 of 3 seeds)"."""
    ordered = sorted(count, key=lambda hparams: (-count[hparams], hparams))
    return ordered[0] if len(ordered) == 1 else " or ".join(f"{p} ({count[p]} of {count.total()} seeds)" for p in ordered)


def _published_sentences(study: Study, published: Sequence[Published], std: str) -> list[str]:
    if not published:
        return []
    ours = sorted({str(planned.settings.get("backbone", "")) for planned in study.plan})
    known = set(map(_comparable_name, ours))
    other = sorted({line.backbone for line in published if _comparable_name(line.backbone) not in known})
    differ = f"another backbone ({', '.join(other)}) than ours ({', '.join(ours)}), so they are not directly comparable"
    spreads = any(spread is not None for line in published for _, spread in line.values.values())
    note = [f"Their ± is the {STDS[PUBLISHED_STD].words}."] if spreads and std != PUBLISHED_STD else []
    return [f"Published numbers are for {differ if other else 'the same backbone'}.", *note]


def _comparable_name(name: str) -> str:
    """Return a comparable name: "ResNet-18" and timm's "resnet18.tv_in1k" are the same network."""
    return "".join(c for c in name.lower().partition(".")[0] if c.isalnum())
