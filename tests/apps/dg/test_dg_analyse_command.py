from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from dg_commands import run, training

from efdm.apps import dg_analyse
from efdm.data import datasets
from efdm.dg import load_classifier
from efdm.lab.analyses import ANALYSES


@pytest.mark.parametrize(
    ("analysis", "more", "lines"),
    [
        (
            "histogram", ("--channel", "3", "--stage", "stage2"),
            (r"stage2, channel 3 of \d+ \(by number\): domains are 0\.\d\d apart", r"  rain: skewness -?[\d.]+, kurtosis "),
        ),
        ("tsne", ("--perplexity", 3), (r"stage1, \d+ channels: how often a", r"  mean: \d+ %$", r"  chance: 33 %$")),
        ("ties", (), (r"values .* \(ReLU, fp32\)", r"  pictures: [\d.]+ %$", r"  stage3, after the stage: [\d.]+ %$")),
    ],
)  # fmt: skip
def test_an_analysis_by_command(
    trained: Path, pictures: Path, tmp_path: Path, analysis: str, more: tuple[object], lines: tuple[str, ...]
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    out = tmp_path / "out"
    result = run("analyse", analysis, "--checkpoint", trained, "--data", pictures, "-o", out, "--per-domain", 8, *more)
    assert result.exit_code == 0, result.output
    for file in ANALYSES[analysis].files:
        assert (out / file).stat().st_size > 0
        assert str(out / file) in result.output
    for line in lines:
        assert re.search(f"^{line}", result.output, re.MULTILINE), result.output
    assert "perplexity" not in result.output
    told = json.loads((out / f"{analysis}.json").read_text())
    assert told["model"] == "tiny, efdmix"
    assert told["pictures"] == {"day": 8, "night": 8, "rain": 8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("histogramm",), "did you mean 'histogram'?"),
        (("ties", "--channel", "3"), "ties takes no --channel"),
        (("tsne", "--stage", "stage1", "--stage", "stage2"), "tsne looks at one stage"),
        (("histogram", "--channel", "99999"), "channel 99999 is not there"),
        (("histogram", "--domains", "snow"), "domain 'snow'"),
    ],
)
def test_what_is_wrong_with_an_analysis_is_one_sentence(
    trained: Path, pictures: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run("analyse", *arguments, "--checkpoint", trained, "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_ties_are_counted_after_every_stage_unless_some_are_named(trained: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    start = ("analyse", "ties", "--checkpoint", trained, "--data", pictures, "--per-domain", 2, "-o")
    for more, stages in (((), ["stage1", "stage2", "stage3"]), (("--stage", "stage2"), ["stage2"])):
        out = tmp_path / str(len(more))
        result = run(*start, out, *more)
        assert result.exit_code == 0, result.output
        rows = json.loads((out / "ties.json").read_text())["rows"]
        assert list(dict.fromkeys(row["stage"] for row in rows))[1:] == stages  # after the pictures themselves


def test_an_analysis_asks_for_pictures_like_those_of_the_training(trained: Path, tmp_path: Path) -> None:
    result = run("analyse", "ties", "--checkpoint", trained, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "was trained on mine; give such pictures as --data" in result.output


def test_an_analysis_looks_where_the_model_was_mixed(pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run(*training(pictures, tmp_path / "run", stages="stage2,stage3")).exit_code == 0
    result = run("analyse", "histogram", "--checkpoint", tmp_path / "run", "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "stage2, channel" in result.output


def test_a_perplexity_that_cannot_be_is_told_of(trained: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    command = ("analyse", "tsne", "--checkpoint", trained, "--data", pictures, "-o", tmp_path / "out", "--perplexity", 500)
    assert "perplexity 11.7, not 500: 36 pictures allow no more" in run(*command).output


def test_pictures_are_kept_as_they_were_in_training(
    trained: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(kind: str, sources: object, size: int, **_: object) -> None:
        raise ValueError(f"read at {size}")

    monkeypatch.setattr(dg_analyse, "load_classifier", lambda *a: load_classifier(*a)._replace(stored_size=20))
    monkeypatch.setattr(datasets, "load_dataset", stop)
    result = run("analyse", "ties", "--checkpoint", trained, "--data", pictures, "-o", tmp_path / "out")
    assert "read at 20" in result.output
