"""Selection rules on constructed records for which each rule chooses a different evaluation."""

from typing import Any

import pytest

from efdm.lab.protocols import Cell
from efdm.lab.selection import SELECTIONS, Candidates, validation

CELL = Cell(("a", "b"), ("t",))


def evaluation(step: int, a: int, b: int, oracle: int, test: int, last: bool = False) -> dict[str, Any]:
    val = {"a": [a, 100], "b": [b, 100], "t": [oracle, 100]}
    return {"run": "r", "step": step, "last": last, "val": val, "test": {"t": [test, 500]}}


def pair(domain: str, accuracies: dict[int, int]) -> list[dict[str, Any]]:
    return [{"run": "p", "step": s, "val": {domain: [0, 100]}, "test": {domain: [n, 500]}} for s, n in accuracies.items()]


SLOW = [evaluation(1, 90, 70, 10, 100), evaluation(2, 85, 80, 99, 200), evaluation(3, 70, 70, 60, 300, last=True)]
FAST = [evaluation(1, 60, 60, 95, 400), evaluation(2, 60, 60, 0, 450), evaluation(3, 65, 65, 70, 499, last=True)]
# per domain, in 500: step 1 is best for slow (mean 300), step 2 for fast (mean 400)
PAIRS = {
    "slow": {"a": pair("a", {1: 300, 2: 200, 3: 250}), "b": pair("b", {1: 300, 2: 310, 3: 250})},
    "fast": {"a": pair("a", {1: 100, 2: 500, 3: 100}), "b": pair("b", {1: 100, 2: 300, 3: 450})},
}


def chosen(rule: str, *points: str) -> tuple[str, int]:
    runs = {"slow": SLOW, "fast": FAST}
    hparams, record = SELECTIONS[rule].choose(Candidates(CELL, {p: runs[p] for p in points}, PAIRS))
    return hparams, record["step"]


def test_each_rule_chooses_another_evaluation() -> None:
    assert chosen("last", "slow") == ("slow", 3)
    assert chosen("training-domain validation", "slow", "fast") == ("slow", 2)  # 82.5, more than 80 at step 1
    assert chosen("leave-one-domain-out cross-validation", "slow", "fast") == ("fast", 2)
    assert chosen("oracle", "slow", "fast") == ("fast", 3)  # 70 at the last step, although slow had 99 earlier


def test_ties_go_to_the_first_combination_and_the_earliest_step() -> None:
    same = [evaluation(1, 50, 50, 50, 1), evaluation(2, 50, 50, 50, 2, last=True)]
    hparams, record = SELECTIONS["training-domain validation"].choose(Candidates(CELL, {"x": same, "y": same}, {}))
    assert (hparams, record["step"]) == ("x", 1)


def test_cross_validation_skips_steps_that_are_not_common() -> None:
    rule, pairs = (
        SELECTIONS["leave-one-domain-out cross-validation"],
        {"a": pair("a", {1: 500, 2: 1}), "b": pair("b", {2: 1})},
    )
    assert rule.choose(Candidates(CELL, {"slow": SLOW}, {"slow": pairs}))[1]["step"] == 2
    with pytest.raises(ValueError, match="same steps"):
        rule.choose(Candidates(CELL, {"slow": SLOW}, {"slow": {"a": [], "b": []}}))


@pytest.mark.parametrize("rule", [name for name in SELECTIONS if name != "oracle"])
def test_only_the_oracle_depends_on_the_target(rule: str) -> None:
    changed = [{**r, "val": {**r["val"], "t": [100 - r["val"]["t"][0], 100]}, "test": {"t": [0, 500]}} for r in SLOW]
    steps = [SELECTIONS[rule].choose(Candidates(CELL, {"slow": runs}, PAIRS))[1]["step"] for runs in (SLOW, changed)]
    assert steps[0] == steps[1]


def test_records_without_validation_pictures_are_refused() -> None:
    record = {"run": "r", "step": 1, "last": True, "val": {"a": [1, 2], "b": [0, 0]}, "test": {"t": [1, 2]}}
    with pytest.raises(ValueError, match="no validation pictures of b"):
        validation(record, ("a", "b"))
