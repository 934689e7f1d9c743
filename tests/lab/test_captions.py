from __future__ import annotations

import pytest
from sweeps import DOMAINS, SHORT, small, steady, studied

from efdm.dg.protocols import Cell
from efdm.dg.settings import Settings
from efdm.lab import accuracy_table, comparison_table, tables
from efdm.lab.scores import pooled


def test_a_caption_tells_which_settings_a_rule_chose() -> None:
    def accuracy(settings: Settings, step: int, split: str, domain: str) -> float:
        """Without art the large rate is better, and without photo for seed 2; EFDMix always wants the small one."""
        left = settings.test_domains[0]
        large = settings.method == "erm" and (left == "art" or (left, settings.seed) == ("photo", 2))
        return 90 if (settings.lr == 0.1) == large else 80

    study = studied(small(grid={"lr": (0.1, 0.01)}), accuracy)
    erm = (
        "Chosen for erm: art lr 0.1; cartoon lr 0.01; photo lr 0.01 (2 of 3 seeds) or lr 0.1 (1 of 3 seeds); sketch lr 0.01."
    )
    caption = accuracy_table(study, "training-domain validation").caption
    assert [s for s in caption if s.startswith("Chosen")] == [erm, "Chosen for efdmix: lr 0.01 everywhere."]
    assert "Chosen" not in " ".join(accuracy_table(study, "last").caption)  # which lists them
    assert "Chosen" not in " ".join(accuracy_table(studied(small(), steady), "oracle").caption)  # there is no grid


def test_captions_tell_the_settings_and_who_has_others() -> None:
    recipe = small(methods={"erm": {}, "efdmix": {"iterations": 60}}, columns={"art": {"batch": 8}, "photo": {"batch": 16}})
    caption = " ".join(accuracy_table(studied(recipe, lambda *told: 50.0)).caption)
    for words in ("tiny", "lr 0.001", "cosine schedule", "sgd", "batch 8 to 64"):
        assert words in caption
    assert "Iterations: 30 iterations for erm; 60 iterations for efdmix." in caption
    one = " ".join(accuracy_table(studied(small(settings={**SHORT, "iterations": 1}), steady)).caption)
    assert ", 1 iteration, " in one


def test_captions_tell_what_a_row_is_where_its_name_does_not() -> None:
    rows = {
        "erm": {}, "always": {"method": "efdmix", "options": {"p": 1.0}}, "efdmix": {"options": {"p": 0.5}},
        "weak": {"method": "efdmix", "options": {"alpha": 0.9, "p": 0.2}}, "mixstyle": {"options": {"p": 0.7}},
    }  # fmt: skip
    caption = accuracy_table(studied(small(methods=rows), lambda *told: 50.0)).caption
    told = [s for s in caption if s.startswith(("erm", "always", "efdmix", "weak", "mixstyle"))]
    # the usual p of efdmix is 0.5
    assert sorted(told) == ["always: efdmix, p=1.0.", "mixstyle: mixstyle, p=0.7.", "weak: efdmix, p=0.2, alpha=0.9."]


def test_one_seed_is_not_told_what_a_deviation_is() -> None:
    one, several = (" ".join(accuracy_table(studied(small(seeds=seeds), steady)).caption) for seeds in ((0,), (0, 1)))
    assert "±" not in one
    assert "One seed" in one
    assert "±" in several


def test_what_tables_have_in_common_is_said_once() -> None:
    recipe = small(orders=(("erm", "efdmix"),))
    first, *others = tables(studied(recipe, steady))
    assert first.caption == accuracy_table(studied(recipe, steady)).caption
    said = [sentence for table in (first, *others) for sentence in table.caption if sentence != "The rest is as above."]
    assert len(said) == len(set(said))
    assert others[0].caption[-1] == "The rest is as above."


@pytest.mark.parametrize(("protocol", "rule", "counted"), [
    ("leave-one-out", "last", "over all pictures of the test domain."),
    ("leave-one-out", "oracle", "over the pictures of the test domain, without those held out."),
    ("single-source", "last", "over all pictures of the test domains together."),
    ("domainbed", "last", "over the pictures of the test domain, without those held out."),
])  # fmt: skip
def test_a_caption_says_which_pictures_count(protocol: str, rule: str, counted: str) -> None:
    caption = " ".join(accuracy_table(studied(small(protocol=protocol, selections=(rule,)), steady), rule).caption)
    assert f"Accuracy in % {counted}" in caption
    assert ("all pictures" in caption) == ("all pictures" in counted)


@pytest.mark.parametrize(("protocol", "rule", "apart", "counted"), [
    ("leave-one-out", "last", DOMAINS, "over the test pictures of the test domain, kept apart from the others."),
    ("leave-one-out", "oracle", DOMAINS, "over the test pictures of the test domain, kept apart from the others."),
    ("single-source", "last", DOMAINS, "over the test pictures of the test domains together, kept apart from the others."),
    ("leave-one-out", "last", ("photo",), "over all pictures of the test domain (of photo the test pictures alone)."),
])  # fmt: skip
def test_a_caption_says_which_domains_keep_test_pictures_apart(protocol: str, rule: str, apart, counted: str) -> None:
    study = studied(small(protocol=protocol, selections=(rule,)), steady)
    for record in (record for records in study.runs.values() for record in records):
        record["official_test"] = [domain for domain in record["test"] if domain in apart]
    assert f"Accuracy in % {counted}" in accuracy_table(study, rule).caption[1]


@pytest.mark.parametrize(("apart", "expected"), [((), 87.5), (("art",), 80.0)], ids=["val_among_test", "test_apart"])
def test_what_an_oracle_looked_at_does_not_count(apart: tuple[str, ...], expected: float) -> None:
    record = {"run": "one", "val": {"art": [10, 20]}, "test": {"art": [80, 100]}, "official_test": list(apart)}
    assert pooled(record, Cell(("photo",), ("art",)), "rest") == expected


@pytest.mark.parametrize("scores", [("pooled",), ("pooled", "mean of domains")], ids=["one", "two"])
def test_a_score_is_named_where_there_is_another(scores: tuple[str, ...]) -> None:
    study = studied(small(scores=scores, orders=(("erm", "efdmix"),)), steady)
    for table in (accuracy_table(study), comparison_table(study)):
        told = " ".join([table.title, *table.caption])
        assert ("pooled" in told) == (len(scores) == 2)
