import pytest
from sweeps import DOMAINS, small, steady, studied

from efdm.dg.settings import Settings
from efdm.lab import accuracy_table, tables
from efdm.lab.protocols import Cell
from efdm.lab.selection import pooled


def test_chosen_hyperparameters() -> None:
    def accuracy(settings: Settings, step: int, split: str, domain: str) -> float:
        """For ERM the large rate is better without art, and without photo for seed 2; for EFDMix the small one is better."""
        left = settings.test_domains[0]
        large = settings.method == "erm" and (left == "art" or (left, settings.seed) == ("photo", 2))
        return 90 if (settings.lr == 0.1) == large else 80

    study = studied(small(grid={"lr": (0.1, 0.01)}), accuracy)
    erm = (
        "Chosen for erm: art lr 0.1; cartoon lr 0.01; photo lr 0.01 (2 of 3 seeds) or lr 0.1 (1 of 3 seeds); sketch lr 0.01."
    )
    caption = accuracy_table(study, "training-domain validation").caption
    assert [s for s in caption if s.startswith("Chosen")] == [erm, "Chosen for efdmix: lr 0.01 everywhere."]
    assert "Chosen" not in " ".join(accuracy_table(study, "last").caption)  # lists them
    assert "Chosen" not in " ".join(accuracy_table(studied(small(), steady), "oracle").caption)  # no grid


def test_common_and_differing_settings() -> None:
    recipe = small(methods={"erm": {}, "efdmix": {"iterations": 60}}, columns={"art": {"batch": 8}, "photo": {"batch": 16}})
    caption = " ".join(accuracy_table(studied(recipe, lambda *_: 50.0)).caption)
    for words in ("tiny", "lr 0.001", "cosine schedule", "sgd", "batch 8 to 64"):
        assert words in caption
    assert "Iterations: 30 for erm; 60 for efdmix." in caption
    two = small(methods=["erm"], settings={"iterations": 1600}, columns={"art": {"iterations": 800}})
    assert "iterations 800 or 1,600" in " ".join(accuracy_table(studied(two, lambda *_: 50.0)).caption)


def test_rows_with_other_names_or_options() -> None:
    rows = {
        "erm": {}, "always": {"method": "efdmix", "options": {"p": 1.0}}, "efdmix": {"options": {"p": 0.5}},
        "weak": {"method": "efdmix", "options": {"alpha": 0.9, "p": 0.2}}, "mixstyle": {"options": {"p": 0.7}},
    }  # fmt: skip
    caption = accuracy_table(studied(small(methods=rows), lambda *_: 50.0)).caption
    sentences = [s for s in caption if s.startswith(("erm", "always", "efdmix", "weak", "mixstyle"))]
    # efdmix has its default p of 0.5
    assert sorted(sentences) == ["always: efdmix, p=1.0.", "mixstyle: mixstyle, p=0.7.", "weak: efdmix, p=0.2, alpha=0.9."]


def test_drawn_options_are_not_in_the_caption() -> None:
    recipe = small(protocol="domainbed", draws=2, methods=["erm", "coral"], selections=("oracle",))
    assert not [s for s in accuracy_table(studied(recipe, lambda *_: 50.0), "oracle").caption if s.startswith("coral")]


def test_shared_sentences_are_printed_once() -> None:
    recipe = small(orders=(("erm", "efdmix"),))
    first, *others = tables(studied(recipe, steady))
    assert first.caption == accuracy_table(studied(recipe, steady)).caption
    printed = [sentence for table in (first, *others) for sentence in table.caption if sentence != "Otherwise as above."]
    assert len(printed) == len(set(printed))
    assert others[0].caption[-1] == "Otherwise as above."


@pytest.mark.parametrize(("protocol", "rule", "official", "counted"), [
    ("leave-one-out", "last", (), "over all pictures of the test domain."),
    ("leave-one-out", "oracle", (), "over the pictures of the test domain, except those in the validation split."),
    ("single-source", "last", (), "over all pictures of the test domains together."),
    ("domainbed", "last", (), "over the pictures of the test domain, except those in the validation split."),
    ("leave-one-out", "oracle", DOMAINS, "over the official test pictures of the test domain."),
    ("single-source", "last", DOMAINS, "over the official test pictures of the test domains together."),
    ("leave-one-out", "last", ("photo",), "over all pictures of the test domain (the official test pictures for photo)."),
])  # fmt: skip
def test_scored_pictures(protocol: str, rule: str, official: tuple[str, ...], counted: str) -> None:
    study = studied(small(protocol=protocol, selections=(rule,)), steady)
    for record in (record for records in study.runs.values() for record in records):
        record["official_test"] = [domain for domain in record["test"] if domain in official]
    assert f"Accuracy in % {counted}" in accuracy_table(study, rule).caption[1]


@pytest.mark.parametrize(
    ("official", "expected"), [((), 87.5), (("art",), 80.0)], ids=["val is part of test", "official test split"]
)
def test_the_oracle_does_not_score_val(official: tuple[str, ...], expected: float) -> None:
    record = {"run": "one", "val": {"art": [10, 20]}, "test": {"art": [80, 100]}, "official_test": list(official)}
    assert pooled(record, Cell(("photo",), ("art",)), "rest") == expected
