"""Which of many evaluations a table reports. Each rule gives a table of its own; numbers of two rules are never compared.

A training leaves an evaluation every so many steps, and there may be trainings with several settings (a recipe's ``grid``).
One number must come of them for every method, column and seed. The rules differ in what they may look at, and that decides
what their numbers mean:

last                            looks at nothing: the end of the training, as the paper does. Settings are not chosen, so
                                each combination of a grid has a row of its own.
training-domain validation      looks at held-out pictures of the domains that were trained on, which anyone has. Chooses
                                settings and step by the mean of these domains' accuracies.
leave-one-domain-out            treats each training domain in turn as if it were unknown: for a target T and another domain
cross-validation                D there is a training without both, and its accuracy on D stands for what happens in a new
                                domain. Chooses settings and step by the mean over all D, then reports the training without T
                                at that step. Costs a training for every pair of domains more.
oracle                          looks at held-out pictures of the target itself, which nobody has who needs domain
                                generalization: an upper bound, not an estimate. To keep it from choosing step by step, it
                                chooses among settings only and takes the end of each training. It is scored on the pictures
                                it did not look at.

The last three are DomainBed's. Where two are equally good, the first setting and the earliest step win.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from efdm.dg.protocols import Cell
from efdm.lab.scores import VALIDATION, counts, validation

Records = Sequence[Mapping[str, Any]]


class Candidates(NamedTuple):
    """All trainings of a method for one cell and seed.

    ``runs`` maps each setting of the grid (in words) to the records of its training, by rising steps; ``pairs`` maps it to
    {another domain: records of the training without that one, too}. Only whole trainings are in it. ``scored`` is the
    protocol's.
    """

    cell: Cell
    runs: Mapping[str, Records]
    pairs: Mapping[str, Mapping[str, Records]]
    scored: str = "all"


class Choice(NamedTuple):
    """The evaluation to report, the setting it belongs to, and what the rule saw of it."""

    hparams: str
    record: Mapping[str, Any]
    seen: float


@dataclass(frozen=True)
class Selection:
    """``among`` is what the rule chooses: "nothing", so that settings must be listed, or "settings". ``val`` says whose
    held-out pictures it looks at: of the domains that a training sees, or of those it is tested on. ``scored`` "rest" leaves
    out what the rule looked at, whatever the protocol says; ``pairs`` asks for trainings without two domains."""

    name: str
    about: str
    looked_at: Callable[[Candidates, str, Mapping[str, Any]], float | None]
    steps: Literal["last", "every"]
    among: Literal["nothing", "settings"] = "settings"
    val: Literal["nobody's", "train", "test"] = "nobody's"
    scored: Literal["protocol", "rest"] = "protocol"
    pairs: Literal["unused", "needed"] = "unused"

    def choose(self, candidates: Candidates) -> Choice:
        """The best evaluation by what the rule may look at."""
        if self.among == "nothing" and len(candidates.runs) > 1:
            raise ValueError(f"{self.name!r} does not choose among settings ({'; '.join(candidates.runs)}); list them")
        found = []
        for hparams, records in candidates.runs.items():
            for record in records if self.steps == "every" else records[-1:]:
                seen = self.looked_at(candidates, hparams, record)
                if seen is not None:
                    found.append(Choice(hparams, record, seen))
        if not found:
            raise ValueError(f"there is no evaluation that {self.name!r} could choose; were all made at the same steps?")
        return max(found, key=lambda choice: choice.seen)  # the first of equals


def _nothing(candidates: Candidates, hparams: str, record: Mapping[str, Any]) -> float:
    return 0.0


def _training_domains(candidates: Candidates, hparams: str, record: Mapping[str, Any]) -> float:
    return validation(record, candidates.cell.train)


def _test_domains(candidates: Candidates, hparams: str, record: Mapping[str, Any]) -> float:
    return validation(record, candidates.cell.test)


def _domains_left_out(candidates: Candidates, hparams: str, record: Mapping[str, Any]) -> float | None:
    """The mean, over the training domains, of the accuracy there of the training without it, at the same step."""
    seen = []
    for domain in candidates.cell.train:
        same = [r for r in candidates.pairs[hparams][domain] if r["step"] == record["step"]]
        if not same:
            return None
        correct, count = counts(same[0], domain, candidates.scored)
        seen.append(100 * correct / count)
    return statistics.fmean(seen)


SELECTIONS: Mapping[str, Selection] = {
    s.name: s
    for s in (
        Selection("last", "last step, nothing selected", _nothing, "last", among="nothing"),
        Selection(
            VALIDATION,
            "step (and settings, if several) with the best mean accuracy on held-out pictures of the training domains",
            _training_domains,
            "every",
            val="train",
        ),
        Selection(
            "leave-one-domain-out cross-validation",
            "step (and settings) that do best on training domains which are left out as well, one at a time",
            _domains_left_out,
            "every",
            pairs="needed",
        ),
        Selection(
            "oracle",
            "last step; settings, if there are several, chosen on held-out pictures of the test domains, which do not count",
            _test_domains,
            "last",
            val="test",
            scored="rest",
        ),
    )
}
