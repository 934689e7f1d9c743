"""The kinds of training that a recipe can run. The rest of the lab uses only these rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from efdm import dg
from efdm.dg.methods import mixes
from efdm.dg.protocols import PROTOCOLS, Cell, Protocol
from efdm.dg.settings import check
from efdm.dg.training import sampler, train_runs
from efdm.lab.selection import SCORES, Score
from efdm.recognition.settings import RecognitionSettings


@dataclass(frozen=True)
class LabTask:
    """One kind of training.

    Args:
        settings: the class of its settings.
        mixes: returns True if a method inserts layers after stages.
        method_settings: returns the settings that a method needs by default in a cell.
        protocols: its protocols.
        scores: its measures, each a function of a record, a cell and the scored part of the test domains, in percent.
        default_scores: the measures that tables of a protocol show.
        layout: whether every score has its own table, with averages over columns.
        measures: sentences that explain the scores, if these are not accuracies.
        check: raises for contradictory settings.
        sampler: returns the batches of a run; raises if they cannot be drawn.
        train: trains several runs, see `efdm.recognition.workers.train_runs`.
    """

    settings: type[RecognitionSettings]
    mixes: Callable[[str], bool]
    method_settings: Callable[[str, Cell], Mapping[str, Any]]
    protocols: Mapping[str, Protocol]
    scores: Mapping[str, Score]
    default_scores: Callable[[Protocol], tuple[str, ...]]
    check: Callable[[Any], None]
    sampler: Callable[[Any, Any], object]
    train: Callable[..., None]
    layout: Literal["table per score", "one table"] = "table per score"
    measures: tuple[str, ...] = ()

    @property
    def methods(self) -> Mapping[str, Any]:
        """The methods, each with ``options``."""
        return self.settings.methods

    @cached_property
    def settable(self) -> tuple[str, ...]:
        """The settings that a recipe may change; data, protocol and seeds set the others."""
        return tuple(f.name for f in fields(self.settings) if f.name not in FIXED)

    def check_settings(self, changes: Mapping[str, Any]) -> None:
        """Raise SettingError for values of the wrong type."""
        self.settings(data="", train_domains=("a",), test_domains=(), **changes)


FIXED = ("data", "train_domains", "test_domains", "seed")


def _dg_method_settings(method: str, cell: Cell) -> dict[str, Any]:
    batches = dg.METHODS[method].batches
    return {"batches": batches, **({"domains_per_batch": min(2, len(cell.train))} if batches == "domains" else {})}


def _dg_scores(protocol: Protocol) -> tuple[str, ...]:
    return ("pooled",) if protocol.listed == "test" else ("pooled", "mean of domains")


TASKS: Mapping[str, LabTask] = MappingProxyType({
    "dg": LabTask(
        dg.Settings, mixes, _dg_method_settings, PROTOCOLS, SCORES, _dg_scores, check, sampler, train_runs,
    ),
})  # fmt: skip
