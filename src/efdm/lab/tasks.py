"""The tasks that a recipe can run, one row of `TASKS` each. The rest of the lab depends only on these rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import permutations
from typing import Any

from efdm import dg, reid
from efdm.dg.protocols import PROTOCOLS, Cell, Protocol, leave_out
from efdm.errors import SettingError
from efdm.lab.selection import SCORES, SELECTIONS, VALIDATION, Score, Selection
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
    default_scores: Callable[[Protocol], tuple[str, ...]]  # shown in the tables of a protocol
    task: type[RecognitionTask[Any, Any, Any]]
    score_sentences: Callable[[Sequence[Any]], list[str]] = lambda plan: []  # sentences on scores that are not accuracies
    selections: Mapping[str, Selection] = field(default_factory=lambda: SELECTIONS)  # the rules that its records allow
    default_selections: tuple[str, ...] = ("last", VALIDATION, "oracle")

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


RETRIEVAL_SCORES: Mapping[str, str] = {"mAP": "mAP", "R1": "rank1", "R5": "rank5", "R10": "rank10"}  # table -> record


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


def _ordered_pairs(names: Sequence[str]) -> list[Cell]:
    """Return the cells that train on one set and test on another, for all pairs.

    >>> _ordered_pairs(["market", "grid"])
    [Cell(train=('market',), test=('grid',)), Cell(train=('grid',), test=('market',))]
    """
    return [Cell((source,), (target,)) for source, target in permutations(names, 2)]


def _published_split(data: Any, seed: int) -> Any:
    """Return the sets with the published split of the seed's number."""
    try:
        return data.with_split(seed)
    except SettingError as error:
        raise SettingError(f"seed {seed}: {error}", "seeds") from error


_REID_PROTOCOLS: Mapping[str, Protocol] = {
    "cross-dataset": Protocol("train on one data set, test on another", _ordered_pairs, "test", "direction"),
    "cross-dataset, split by seed": Protocol(
        "train on one data set, test on another, with the published split of the seed's number", _ordered_pairs, "test",
        "direction", split=_published_split, split_words=", split by seed",
    ),
    "leave-one-out": Protocol("train on all data sets but one, test on that one", leave_out, "test", "direction"),
}  # fmt: skip

TASKS: Mapping[str, LabTask] = {
    "dg": LabTask(
        dg.Settings,
        method_settings=_dg_method_settings,
        protocols=PROTOCOLS,
        scores=SCORES,
        default_scores=lambda protocol: ("pooled",) if protocol.columns == "test" else ("pooled", "mean of domains"),
        task=dg.training.ClassifierTask,
    ),
    "reid": LabTask(
        reid.Settings,
        method_settings=lambda method, cell: {"batches": reid.METHODS[method].batches},
        protocols=_REID_PROTOCOLS,
        scores={name: _retrieval_score(entry) for name, entry in RETRIEVAL_SCORES.items()},
        default_scores=lambda protocol: tuple(RETRIEVAL_SCORES),
        task=reid.training.ReidTask,
        score_sentences=_retrieval_sentences,
        selections={"last": SELECTIONS["last"]},
        default_selections=("last",),
    ),
}  # fmt: skip
