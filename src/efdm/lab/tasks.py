"""The tasks that a recipe can run, one row of `TASKS` each. The rest of the lab depends only on these rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from efdm import dg, reid
from efdm.lab.protocols import PROTOCOLS, REID_PROTOCOLS, Cell, Protocol
from efdm.lab.selection import SCORES, SELECTIONS, Score, Selection
from efdm.ops.choices import check_choice
from efdm.recognition.methods import Method
from efdm.recognition.settings import RecognitionSettings
from efdm.recognition.training import RecognitionTask


@dataclass(frozen=True)
class LabTask:
    """A row of `TASKS`."""

    settings: type[RecognitionSettings]
    method_settings: Callable[[str, Cell], Mapping[str, Any]]  # defaults of a method in a cell
    protocols: Mapping[str, Protocol]
    scores: Mapping[str, Score]
    selections: Mapping[str, Selection]  # the rules that its records allow
    task: type[RecognitionTask[Any, Any, Any]]
    score_sentences: Callable[[Sequence[Any]], list[str]] = lambda plan: []  # sentences on scores that are not accuracies

    @property
    def methods(self) -> Mapping[str, Method]:
        return self.settings.methods

    def check_changes(self, changes: Mapping[str, Any]) -> None:
        """Raise SettingError for a setting that a recipe cannot change, or for a value of the wrong type."""
        settable = [f.name for f in fields(self.settings) if f.name not in FIXED]
        for name in changes:
            check_choice("setting", name, settable)
        self.settings(data="", train_domains=("a",), test_domains=(), **changes)


FIXED = ("data", "train_domains", "test_domains", "seed")  # set by data, protocol and seeds


def _dg_method_settings(method: str, cell: Cell) -> dict[str, Any]:
    batches = dg.METHODS[method].batches
    return {"batches": batches, **({"domains_per_batch": min(2, len(cell.train))} if batches == "domains" else {})}


def _retrieval_score(entry: str) -> Score:
    return lambda record, cell, scored: 100 * statistics.fmean(record["test"][name][entry] for name in cell.test)


def protocols_of(plan: Sequence[Any]) -> dict[str, str]:
    """Return the protocol of each test set of re-identification, from planned runs."""
    return {name: planned.settings["protocols"].get(name, "official") for planned in plan for name in planned.cell.test}


def _retrieval_sentences(plan: Sequence[Any]) -> list[str]:
    """Return sentences on the scores and on the protocol of each test set."""
    protocols = "; ".join(f"{name} {row} ({reid.PROTOCOLS[row].about})" for name, row in protocols_of(plan).items())
    return [
        "In %: mAP is the mean average precision, Rk the share of queries with a match among the first k. Gallery pictures "
        "of the query's person from the same camera are left out, and distances are cosine distances.",
        f"Test protocols: {protocols}.",
    ]


TASKS: Mapping[str, LabTask] = {
    "dg": LabTask(
        dg.Settings,
        method_settings=_dg_method_settings,
        protocols=PROTOCOLS,
        scores=SCORES,
        selections=SELECTIONS,
        task=dg.training.ClassifierTask,
    ),
    "reid": LabTask(
        reid.Settings,
        method_settings=lambda method, cell: {"batches": reid.METHODS[method].batches},
        protocols=REID_PROTOCOLS,
        scores={name: _retrieval_score(entry) for name, entry in reid.evaluate.SCORES.items()},
        selections={"last": SELECTIONS["last"]},
        task=reid.training.ReidTask,
        score_sentences=_retrieval_sentences,
    ),
}  # fmt: skip
