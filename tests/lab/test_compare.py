import math

import pytest
from scipy import stats

from efdm.lab.compare import compared, contrast_sentence, difference, holm, order_sentence, p_value
from efdm.lab.results import Numbers


def made(**rows: dict[str, list[float | None]]) -> Numbers:
    columns = list(next(iter(rows.values())))
    found = {r: {c: {s: v for s, v in enumerate(vs) if v is not None} for c, vs in cs.items()} for r, cs in rows.items()}
    wanted = {r: {c: list(range(len(vs))) for c, vs in cs.items()} for r, cs in rows.items()}
    return Numbers(list(rows), columns, found, wanted)


def test_known_numbers() -> None:
    """Differences 1, 3 and 5, 7: the seeds' averages are 3 and 5, with variance 2."""
    n = made(erm={"a": [50, 60], "b": [70, 80]}, efdmix={"a": [51, 63], "b": [75, 87]})
    d = difference(n, "erm", "efdmix")
    assert (d.mean, d.pairs, d.seeds, d.better, d.by_column) == (4, 4, 2, 4, {"a": 2, "b": 6})
    assert d.error == pytest.approx(math.sqrt(2 / 2))
    back = difference(n, "efdmix", "erm")
    assert (back.mean, back.better, back.error, back.p) == (-4, 0, d.error, d.p)


def test_p_value_is_that_of_a_paired_t_test_over_seeds() -> None:
    a, b = [50.0, 61.0, 70.0, 82.0, 90.0], [52.0, 62.5, 74.0, 81.0, 93.0]
    d = difference(made(erm={"x": a, "y": a}, efdmix={"x": b, "y": b}), "erm", "efdmix")
    assert d.p == pytest.approx(stats.ttest_rel(b, a).pvalue)


def test_holm_correction_by_hand() -> None:
    zero = {"a": [50.0] * 5}
    noise = [0.1, -0.1, 0.2, -0.2, 0.0]
    rows = {f"m{i}": {"a": [50 + shift + e for e in noise]} for i, shift in enumerate((0.05, 0.25, 1.0))}
    ds = [difference(made(erm=zero, **rows), "erm", row) for row in rows]
    large, middle, small = (d.p for d in ds)
    assert small < middle < large
    expected = [max(large, 2 * middle, 3 * small), max(2 * middle, 3 * small), 3 * small]
    assert [d.p_holm for d in holm(ds)] == pytest.approx(expected)


@pytest.mark.parametrize(("step", "verdict"), [(+1.0, "supported"), (-1.0, "contradicted"), (0.0, "inconclusive")])
def test_order(step: float, verdict: str) -> None:
    noise = [0.2, -0.2, 0.1, -0.1, 0.0]
    n = made(erm={"a": [50.0] * 5}, mixstyle={"a": [53 + e for e in noise]}, efdmix={"a": [53 + step - e for e in noise]})
    (found,) = compared({"": n}, [("erm", "mixstyle", "efdmix")], []).values()
    assert order_sentence(list(found.values())).startswith(f"Order erm < mixstyle < efdmix: {verdict}")


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "inconclusive"), (2, "inconclusive"), (3, "significant")])
def test_fewer_than_three_seeds_are_inconclusive(seeds: int, verdict: str) -> None:
    noise = [0.01, -0.01, 0.0][:seeds]
    n = made(erm={c: [50.0] * seeds for c in "abcd"}, x={c: [51 + e for e in noise] for c in "abcd"})
    assert difference(n, "erm", "x").verdict == verdict


def test_missing_pairs_make_a_comparison_incomplete() -> None:
    d = difference(made(erm={"a": [50, 50, 50]}, efdmix={"a": [60, None, 60]}), "erm", "efdmix")
    assert order_sentence([d]) == "Order erm < efdmix: incomplete."
    assert contrast_sentence(d) == "efdmix - erm: incomplete, 2 of 3 pairs."
    single = difference(made(erm={"a": [50]}, efdmix={"a": [90]}), "erm", "efdmix")
    assert contrast_sentence(single) == "efdmix - erm = +40.00: inconclusive."


@pytest.mark.parametrize(
    ("seeds", "counts"), [({"a": [0, 1, 2, 3], "b": [0, 1, 2]}, (7, 8)), ({"a": [0, 1, 2, 3, 4]}, (5, 10))],
    ids=["seed missing in a column", "column missing"],
)  # fmt: skip
def test_every_seed_needs_every_column(seeds: dict[str, list[int]], counts: tuple[int, int]) -> None:
    """Otherwise its average would be over different domains."""
    found = {row: {c: {s: 50.0 + s + (row == "x") for s in seeds.get(c, ())} for c in "ab"} for row in ("erm", "x")}
    d = difference(Numbers(["erm", "x"], ["a", "b"], found, {"erm": seeds, "x": seeds}), "erm", "x")
    assert (d.verdict, d.pairs, d.expected) == ("incomplete", *counts)


@pytest.mark.parametrize(("p", "text"), [(0.0004, "< 0.001"), (0.0123, "0.012"), (0.0496, "0.0496"), (0.0502, "0.0502")])
def test_p_values_near_the_limit_have_four_digits(p: float, text: str) -> None:
    assert p_value(p) == text
