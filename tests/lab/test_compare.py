from __future__ import annotations

import math

import pytest

from efdm.lab.compare import contrast_sentence, difference, order_sentence, t95, unjudged_sentences
from efdm.lab.results import Numbers


def made(**rows: dict[str, list[float | None]]) -> Numbers:
    columns = list(next(iter(rows.values())))
    found = {r: {c: {s: v for s, v in enumerate(vs) if v is not None} for c, vs in cs.items()} for r, cs in rows.items()}
    wanted = {r: {c: list(range(len(vs))) for c, vs in cs.items()} for r, cs in rows.items()}
    return Numbers(list(rows), columns, found, wanted)


def test_known_numbers() -> None:
    """Differences 1, 3 and 5, 7: mean 4; of the seeds' averages 3 and 5 the variance is 2, of all pairs 20/3."""
    n = made(erm={"a": [50, 60], "b": [70, 80]}, efdmix={"a": [51, 63], "b": [75, 87]})
    d = difference(n, "erm", "efdmix")
    assert (d.mean, d.pairs, d.seeds, d.better) == (4, 4, 2, 4)
    assert d.error == pytest.approx(math.sqrt(2 / 2))
    assert d.error_of_pairs == pytest.approx(math.sqrt(20 / 3 / 4))
    assert d.by_column == {"a": 2, "b": 6}
    back = difference(n, "efdmix", "erm")
    assert (back.mean, back.better, back.error) == (-4, 0, d.error)


def test_pairs_are_of_the_same_seed() -> None:
    """Seeds that differ by ten points do not hide a difference of one."""
    base = [50.0, 60.0, 70.0, 80.0, 90.0]
    n = made(erm={"a": base}, efdmix={"a": [v + 1 + 0.1 * (i % 2) for i, v in enumerate(base)]})
    assert difference(n, "erm", "efdmix").verdict == "higher"
    assert difference(n, "efdmix", "erm").verdict == "lower"


@pytest.mark.parametrize(
    ("step", "words"),
    [(+1.0, "holds at 5 seeds"), (-1.0, "does not hold"), (0.0, "is inconclusive at 5 seeds")],
    ids=["holds", "reversed", "undecided"],
)
def test_the_sentence_of_an_order(step: float, words: str) -> None:
    noise = [0.2, -0.2, 0.1, -0.1, 0.0]
    n = made(erm={"a": [50.0] * 5}, mixstyle={"a": [53 + e for e in noise]}, efdmix={"a": [53 + step - e for e in noise]})
    ds = [difference(n, "erm", "mixstyle"), difference(n, "mixstyle", "efdmix")]
    assert order_sentence(ds).startswith(f"The order erm < mixstyle < efdmix {words}: mixstyle - erm = +3.00")


def test_missing_pairs_are_said_and_not_averaged_over() -> None:
    n = made(erm={"a": [50, 50, 50]}, efdmix={"a": [60, None, 60]})
    d = difference(n, "erm", "efdmix")
    assert d.verdict == "incomplete"
    assert order_sentence([d]) == "The order erm < efdmix cannot be judged yet: efdmix - erm: 2 of 3 pairs are there."


def test_domains_are_fixed_and_seeds_are_what_is_repeated() -> None:
    """A domain that gains much and one that loses little do not hide that their average gains, always."""
    zero = {"a": [50.0] * 5, "b": [50.0] * 5}
    noise = [0.1, -0.1, 0.05, -0.05, 0.0]
    d = difference(made(erm=zero, efdmix={"a": [60 + e for e in noise], "b": [45 - e / 2 for e in noise]}), "erm", "efdmix")
    assert d.verdict == "higher"
    assert d.mean < 2 * d.error_of_pairs


def test_runs_of_a_seed_that_go_together_are_one_witness() -> None:
    """Twenty pairs with a t of 4.2 if they were independent; but they are five seeds with one of 1.8."""
    by_seed = [4.0, 0.1, 2.5, -1.0, 0.4]
    erm, other = {c: [50.0] * 5 for c in "abcd"}, {c: [50 + s for s in by_seed] for c in "abcd"}
    d = difference(made(erm=erm, efdmix=other), "erm", "efdmix")
    assert d.mean > t95(19) * d.error_of_pairs
    assert d.verdict == "inconclusive"


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "inconclusive"), (2, "inconclusive"), (3, "higher")])
def test_fewer_than_three_seeds_decide_nothing(seeds: int, verdict: str) -> None:
    noise = [0.01, -0.01, 0.0][:seeds]
    n = made(erm={c: [50.0] * seeds for c in "abcd"}, x={c: [51 + e for e in noise] for c in "abcd"})
    d = difference(n, "erm", "x")
    assert d.verdict == verdict
    assert ("holds" in order_sentence([d])) == (verdict == "higher")


def test_a_seed_that_was_not_asked_for_everywhere_leaves_it_incomplete() -> None:
    """Its average would be one of other domains."""
    seeds = {"a": [0, 1, 2, 3], "b": [0, 1, 2]}
    found = {row: {c: {s: 50.0 + s + (row == "x") for s in ss} for c, ss in seeds.items()} for row in ("erm", "x")}
    d = difference(Numbers(["erm", "x"], ["a", "b"], found, {"erm": seeds, "x": seeds}), "erm", "x")
    assert (d.verdict, d.pairs, d.asked) == ("incomplete", 7, 8)


def test_what_cannot_be_compared_is_said() -> None:
    n = made(erm={"a": [50]}, efdmix={"a": [60]})
    told = unjudged_sentences(n, [("erm", "efdmix"), ("erm", "hm", "dsu")], [("efdmix", "hm"), ("erm", "efdmix")])
    assert told == ["2 of 4 orders and contrasts cannot be judged: there is no row hm, dsu."]
    assert unjudged_sentences(n, [("erm", "hm")], []) == ["The order erm < hm cannot be judged: there is no row hm."]
    assert unjudged_sentences(n, [("erm", "efdmix")], []) == []


def test_some_of_the_domains_decide_nothing() -> None:
    """As with `--domains a`: the columns that were not asked for belong to the claim."""
    seeds = {"a": [0, 1, 2, 3, 4]}
    found = {row: {"a": {s: 50.0 + 0.1 * s + 5 * (row == "x") for s in seeds["a"]}, "b": {}} for row in ("erm", "x")}
    d = difference(Numbers(["erm", "x"], ["a", "b"], found, {"erm": seeds, "x": seeds}), "erm", "x")
    assert (d.verdict, d.pairs, d.asked) == ("incomplete", 5, 10)
    assert order_sentence([d]) == "The order erm < x cannot be judged yet: x - erm: 5 of 10 pairs are there."


def test_one_pair_decides_nothing() -> None:
    d = difference(made(erm={"a": [50]}, efdmix={"a": [90]}), "erm", "efdmix")
    assert d.verdict == "inconclusive"
    assert "without an error" in contrast_sentence(d)
    assert "told at 1 seed:" in contrast_sentence(d)
    assert "is inconclusive at 1 seed:" in order_sentence([d])


def test_a_contrast_claims_no_direction() -> None:
    n = made(stop={"a": [50, 51, 50, 51]}, flow={"a": [49.0, 50.1, 49, 50]})
    assert contrast_sentence(difference(n, "stop", "flow")).startswith("flow is worse than stop: flow - stop = -0.9")


def test_quantiles_are_cautious_between_rows() -> None:
    assert t95(4) == 2.776
    assert t95(16) == t95(15) > t95(17)
    assert t95(10_000) > 1.96
