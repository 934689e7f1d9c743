"""The kinds of training that a recipe can run. The rest of the lab uses only these rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from efdm import dg
from efdm.dg.methods import check_method, mixes
from efdm.dg.protocols import PROTOCOLS, Cell, Protocol
from efdm.dg.settings import check, resolved, run_label
from efdm.dg.training import sampler, train_runs
from efdm.lab.selection import SCORES, Score


@dataclass(frozen=True)
class LabTask:
    """One kind of training.

    Args:
        settings: the class of its settings, with the fields "data", "train_domains", "test_domains", "method" and "seed".
        methods: its methods, each with ``options``.
        check_method: raises for a name that is not in its third argument, which defaults to all methods.
        mixes: returns True if a method inserts layers after stages.
        method_settings: returns the settings that a method needs by default in a cell.
        protocols: its protocols.
        scores: its measures, each a function of a record, a cell and the scored part of the test domains, in percent.
        default_scores: the measures that tables of a protocol show.
        layout: whether every score has its own table, with averages over columns.
        measures: sentences that explain the scores, if these are not accuracies.
        resolved: returns settings with all options and checksums.
        check: raises for contradictory settings.
        identity: returns the identity of a run.
        label: describes a run in a few words.
        sampler: returns the batches of a run; raises if they cannot be drawn.
        train: trains several runs, see `efdm.recognition.workers.train_runs`.
    """

    settings: type[Any]
    methods: Mapping[str, Any]
    check_method: Callable[..., None]
    mixes: Callable[[str], bool]
    method_settings: Callable[[str, Cell], Mapping[str, Any]]
    protocols: Mapping[str, Protocol]
    scores: Mapping[str, Score]
    default_scores: Callable[[Protocol], tuple[str, ...]]
    resolved: Callable[[Any], Any]
    check: Callable[[Any], None]
    identity: Callable[[Any], str]
    label: Callable[[Any], str]
    sampler: Callable[[Any, Any], object]
    train: Callable[..., None]
    layout: Literal["table per score", "one table"] = "table per score"
    measures: tuple[str, ...] = ()

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
        dg.Settings, dg.METHODS, check_method, mixes, _dg_method_settings, PROTOCOLS, SCORES, _dg_scores,
        resolved, check, dg.identity, run_label, sampler, train_runs,
    ),
})  # fmt: skip
