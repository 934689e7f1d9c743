"""The verdicts on the paper's claims follow from the records by fixed rules."""

import re

import pytest
import reproduction
from reproduction import FAILS, HOLDS, INCOMPLETE, OPEN, Claim, Row, claim_rows, verdict
from sweeps import small, studied, without

from efdm.dg.settings import Settings
from efdm.lab import Recipe
from efdm.lab.compare import Difference


def difference(mean: float, error: float, p: float, *, seeds: int = 5, pairs: int = 20) -> Difference:
    return Difference("a", "b", mean, error, pairs, 20, seeds, 10, {}, p, p)


@pytest.mark.parametrize(
    ("found", "better", "similar"),
    [
        (difference(2.0, 0.1, 0.001), HOLDS, FAILS),
        (difference(-2.0, 0.1, 0.001), FAILS, FAILS),
        (difference(2.0, 0.9, 0.2), OPEN, OPEN),
        (difference(0.1, 0.2, 0.8), OPEN, HOLDS),
        (difference(0.1, 0.8, 0.8), OPEN, OPEN),  # too uncertain to be called similar
        (difference(-0.4, 0.05, 0.001), FAILS, HOLDS),  # significant, but less than a point
        (difference(2.0, 0.1, 0.001, pairs=19), INCOMPLETE, INCOMPLETE),
        (difference(2.0, 0.1, 0.001, seeds=2), OPEN, OPEN),
    ],
)
def test_rules(found: Difference, better: str, similar: str) -> None:
    assert (verdict(found), verdict(found, "similar")) == (better, similar)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [((2, 0.3), (1, 0.4), "yes"), ((2, 0.3), (-2, 0.4), "**no** (p < 0.001)"), ((1, 2), (-1, 2), "not contradicted")],
)
def test_networks_agree(first: tuple[float, float], second: tuple[float, float], agree: str) -> None:
    assert reproduction.agreement(difference(*first, 0.5), difference(*second, 0.5)) == agree


def by_method(settings: Settings, step: int, split: str, domain: str) -> float:
    return 60 + settings.seed + {"erm": 0, "mixstyle": 4, "efdmix": 2 + 0.1 * settings.seed}[settings.method]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows of two claims on synthetic records: MixStyle is better than ERM and than EFDMix."""
    recipe: Recipe = small(methods=["erm", "mixstyle", "efdmix"], orders=(("erm", "mixstyle", "efdmix"),), seeds=range(5))
    monkeypatch.setattr(reproduction.lab, "load_recipe", lambda name: recipe)
    monkeypatch.setattr(reproduction.lab, "read_study", lambda folder: studied(recipe, by_method))
    monkeypatch.setattr(reproduction, "folders", lambda: {"small": reproduction.RESULTS / "small"})
    claims = [Claim("here", "up", "erm", "mixstyle", ("small",)), Claim("here", "down", "mixstyle", "efdmix", ("small",))]
    backwards = Claim("here", "the other way round", "efdmix", "mixstyle", ("small",))
    absent = Claim("here", "not run", "erm", "mixstyle", ("other",))
    return [row for claim in (*claims, backwards, absent) for row in claim_rows(claim)]


def test_claims_are_judged_by_their_records(rows: list[Row]) -> None:
    assert [row.verdict for row in rows] == [HOLDS, FAILS, HOLDS, reproduction.ABSENT]
    assert rows[0].ours == "62.0 ± 0.7 → 66.0 ± 0.7 (+4.0 ± 0.0, p < 0.001; 5 seeds)"
    assert rows[1].ours.startswith("66.0 ± 0.7 → 64.2 ± 0.8 (-1.8 ± 0.1, p")
    assert rows[2].ours.startswith("64.2 ± 0.8 → 66.0 ± 0.7 (+1.8 ± 0.1, p")


def test_one_correction_for_all_comparisons() -> None:
    steps = [Row("here", f"claim {n}", "ResNet-18", "", "", "", "", difference(n, 0.5, 0.03)) for n in (1, 2)]
    others = [steps[0]._replace(place="again"), steps[0]._replace(network="MobileNetV2"), steps[0]._replace(difference=None)]
    clear = steps[0]._replace(claim="clear", difference=difference(9, 0.5, 0.001))
    words = reproduction.single_correction([*steps, *others, clear])
    assert words.splitlines() == [
        "With one correction for all 3 comparisons with ResNet-18 below, 1 of the 3 significant differences would remain. "
        "These would not:",
        "",
        "- here, ResNet-18: claim 1 (p = 0.060)",
        "- here, ResNet-18: claim 2 (p = 0.060)",
    ]
    assert reproduction.single_correction([clear]).endswith("1 of the 1 significant differences would remain.")


def test_an_interrupted_sweep_is_judged_by_its_complete_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(methods=["erm", "mixstyle"], orders=(("erm", "mixstyle"),), seeds=range(5))
    whole = studied(recipe, by_method)
    monkeypatch.setattr(reproduction.lab, "load_recipe", lambda name: recipe)
    monkeypatch.setattr(reproduction, "folders", lambda: {"small": reproduction.RESULTS / "small"})
    claim = Claim("here", "up", "erm", "mixstyle", ("small",))
    for missing, says, words in (([-1], HOLDS, "4 seeds)"), (range(len(whole.plan)), INCOMPLETE, "no complete seed")):
        monkeypatch.setattr(reproduction.lab, "read_study", lambda folder, m=missing: without(whole, *m))
        (row,) = claim_rows(claim)
        assert row.verdict == says
        assert row.ours.endswith(words)


def test_every_claim_names_rows_that_a_recipe_compares() -> None:
    for claim in reproduction.CLAIMS:
        assert list(claim_rows(claim)), claim


def test_every_row_is_in_one_table() -> None:
    places = [place for section in reproduction.SECTIONS.values() for place in section]
    assert sorted(places) == sorted({row.place for row in reproduction.rows()})
    lines = [line for line in reproduction.reproduction_table().splitlines() if line.startswith("| ")]
    assert len(lines) == len(reproduction.rows()) + 2 * len(reproduction.SECTIONS)


def test_styles_that_differ_in_higher_orders_only() -> None:
    row = reproduction.diversity_row()
    assert row.verdict == HOLDS
    assert "0.00 (MixStyle)" in row.ours


def test_every_record_of_the_table_exists() -> None:
    for folder in re.findall(r"\]\(\.\./(results/[^)]+)\)", reproduction.reproduction_table()):
        assert (reproduction.ROOT / folder).is_file()


def test_published_numbers_are_shown() -> None:
    shown = {row[:3]: row.paper for claim in reproduction.CLAIMS for row in claim_rows(claim)}
    one_out, one_in, better = "Table 1, leave one out", "Table 1, single source", "EFDMix (flow) is better than"
    assert shown[one_out, f"{better} MixStyle", "ResNet-50"] == "85.8 → 86.6 (+0.8)"
    assert shown[one_in, f"{better} MixStyle", "ResNet-50"] == "58.6 → 61.2 (+2.6)"
    assert shown["Section 4.2, DomainBed", f"{better} ERM, oracle", "ResNet-18"] == "86.7 → 87.9 (+1.2)"
    assert shown["authors' code", f"leave one out: {better} EFDMix (stop)", "ResNet-18"] == "-"
    assert shown["Figure 9", "AdaIN is better than AdaMean", "ResNet-18"] == "figure, more than +1"


def test_comparisons_of_the_paper_that_no_recipe_makes_are_listed() -> None:
    found = {(row.claim, row.network): row for claim in reproduction.CLAIMS for row in claim_rows(claim)}
    row = found["with labels, EFDMix (flow) is better than MixStyle", "ResNet-50"]
    assert (row.paper, row.ours, row.verdict) == ("86.2 → 86.9 (+0.7)", "-", reproduction.ABSENT)
    assert found["EFDMix (stop) is better than MixStyle", "ResNet-50"].verdict == reproduction.ABSENT
    row = found["EFDMix (flow) is better than ERM, oracle", "ResNet-50"]
    assert (row.ours, row.verdict) == ("`pacs_domainbed_resnet50`", reproduction.ABSENT)
