import csv
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from studies import PREFERENCE, simulate, small_study

from efdm.data import Source, read_picture, write_picture
from efdm.errors import DamagedFileError, RunFolderError, SettingError
from efdm.style.evaluate import Pair
from efdm.style.study import Study, embedded_pairs, load_renders, make_study
from efdm.style.study_report import agreement, disputed, fit_strengths, report, results, write_report


def test_a_study_is_blind_and_shuffled(tmp_path: Path) -> None:
    study = small_study(tmp_path)
    assert len(study.items) == 6
    names = {path.name for path in (study.folder / "pictures").iterdir()}
    assert names == study.files
    assert len(names) == 6 * 5
    assert not any(label in name for label in PREFERENCE for name in names)
    first = Counter(study.order(f"rater {i}", i % 6)[0] for i in range(300))
    assert all(70 < count < 130 for count in first.values())
    assert study.order("a", 0) == Study(study.folder).order("a", 0)
    assert len({study.next_item(f"rater {i}") for i in range(60)}) == 6


def test_two_outputs_at_a_time(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=2, question="ab")
    assert [set(item.outputs) for item in study.items[:3]] == [{"good", "fair"}, {"good", "poor"}, {"fair", "poor"}]
    assert len(study.items) == 6


def test_one_vote_per_rater_and_item(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=2)
    item = study.next_item("anna")
    assert study.vote("anna", item, 0)
    assert not study.vote("anna", item, 1)
    assert study.vote("ben", item, 1)
    assert study.next_item("anna") == 1 - item
    assert study.vote("anna", 1 - item, 2, 1.5)
    assert study.next_item("anna") is None
    assert study.count("anna") == 2
    assert [v.choice for v in Study(study.folder).votes()] == [
        study.order("anna", item)[0], study.order("ben", item)[1], study.order("anna", 1 - item)[2]
    ]  # fmt: skip
    for wrong in ((2, 0), (0, 3), (-1, 0)):
        with pytest.raises(ValueError, match="no output"):
            study.vote("anna", *wrong)
    rows = list(csv.DictReader(io.StringIO(study.csv())))
    assert [row["rater"] for row in rows] == ["anna", "ben", "anna"]
    assert rows[0]["shown"].split("|")[0] == rows[0]["choice"]
    assert rows[0]["content"].endswith(".png")


@pytest.mark.parametrize("question", ["favourite", "ab"])
def test_the_report_recovers_a_known_preference(tmp_path: Path, question: str) -> None:
    study = small_study(tmp_path, pairs=10, question=question)
    simulate(study, raters=30)
    found = results(study, study.votes())
    assert [r.label for r in found] == ["good", "fair", "poor"]
    for r in found:
        assert r.strength.low < PREFERENCE[r.label] < r.strength.high
        assert r.strength.value == pytest.approx(PREFERENCE[r.label], abs=0.25)
        assert r.share.low < r.share.value < r.share.high
        assert r.share.value == pytest.approx(r.won / r.shown)
    assert sum(r.won for r in found) == len(study.votes())
    same, kappa = agreement(study, study.votes())
    assert 0.4 < same < 0.8
    assert abs(kappa) < 0.1  # the raters draw independently
    text = report(study)
    assert "30 raters" in text
    assert text.index("| good") < text.index("| fair") < text.index("| poor")


def test_strengths_of_two_candidates_are_a_log_odds_ratio() -> None:
    both = np.ones((1, 2))
    strengths = fit_strengths(np.array([[3000.0, 1000.0]]), both)
    assert strengths[0] - strengths[1] == pytest.approx(np.log(3), abs=0.01)
    assert np.isfinite(fit_strengths(np.array([[10.0, 0.0]]), both)).all()


def test_agreement_and_disputed_items(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=3)

    def vote(rater: str, item: int, label: str) -> None:
        study.vote(rater, item, study.order(rater, item).index(label))

    for rater, labels in {"a": ("good", "fair", "good"), "b": ("good", "fair", "poor")}.items():
        for item, label in enumerate(labels):
            vote(rater, item, label)
    same, kappa = agreement(study, study.votes())
    chance = (3 / 6) ** 2 + (2 / 6) ** 2 + (1 / 6) ** 2
    assert same == pytest.approx(2 / 3)
    assert kappa == pytest.approx((2 / 3 - chance) / (1 - chance))
    assert disputed(study, study.votes()) == [(2, Counter(good=1, poor=1))]
    written = write_report(study)
    assert [path.name for path in written] == ["report.md", "votes.csv", "disputed.png"]
    assert read_picture(written[2]).rgb.shape[2] > 5 * 256


def test_a_single_vote(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=1)
    with pytest.raises(SettingError, match="no votes"):
        report(study)
    study.vote("anna", 0, 0)
    assert "kappa is -" in report(study)
    assert len(write_report(study)) == 2


def test_pictures_from_elsewhere_and_networks(tmp_path: Path) -> None:
    pairs = embedded_pairs(2)
    for pair in pairs:
        write_picture(tmp_path / "elsewhere" / f"{pair.content.stem}__{pair.style.stem}.jpg", torch.rand(3, 50, 50))
    renders = load_renders(["small", "small:adain:0.5", f"other={tmp_path / 'elsewhere'}"], pairs)
    assert list(renders) == ["small", "small:adain:0.5", "other"]
    study = make_study(tmp_path / "study", pairs, renders, size=40)
    sizes = {read_picture(study.folder / "pictures" / file).rgb.shape for file in study.items[0].outputs.values()}
    assert len(sizes) == 1
    assert study.candidates["small:adain:0.5"]["strength"] == 0.5
    assert study.candidates["small"]["method"] == "efdm"
    missing = Pair(Source("x.png", "x", tmp_path), pairs[0].style)
    with pytest.raises(SettingError, match=f"x__{pairs[0].style.stem}"):
        load_renders([f"other={tmp_path / 'elsewhere'}"], [*pairs, missing])


@pytest.mark.parametrize("words", [["small", "small"], ["small:efdm:much"], ["small:efdm:1:2"], ["smal"], ["small:adian"]])
def test_wrong_candidates(words: list[str]) -> None:
    with pytest.raises(ValueError, match="|".join({"named", "MODEL", "smal", "adian"})):
        load_renders(words)


def test_folders_that_are_not_studies(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not a study"):
        Study(tmp_path)
    study = small_study(tmp_path, pairs=1)
    with pytest.raises(RunFolderError, match="already"):
        small_study(tmp_path, pairs=1)
    file = study.folder / "study.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": "efdm study 9"}))
    with pytest.raises(DamagedFileError, match="study 9"):
        Study(study.folder)
    file.write_text("{}")
    with pytest.raises(DamagedFileError):
        Study(study.folder)
