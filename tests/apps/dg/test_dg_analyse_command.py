import json
import re
from pathlib import Path

import pytest
from dg_commands import draw, run, training

from efdm.dg import load_classifier
from efdm.lab import analyses
from efdm.lab.analyses import ANALYSES


@pytest.mark.parametrize(
    ("analysis", "options", "patterns"),
    [
        ("histogram", ("--channel", "3", "--stage", "stage2"), (r"stage2, channel 3 of \d+", r"  rain: skewness -?[\d.]+")),
        (
            "tsne",
            ("--perplexity", 500),
            (r"stage1, \d+ channels", r".*from 500 to 7.7", r"  mean: \d+", r"  chance: 33 %$"),
        ),
        ("projection", (), (r"\| match \| strength \| rain", r"\| efdm \| 0.25 \| [\d.]+ \|$")),
        (
            "ties",
            (),
            (
                r"\| place \| values \| ReLU, fp32 \|",
                r"\| pictures \| 256 \| [\d.]+ ",
                r"\| stage3, after the stage \| .*[\d.]+ \|$",
            ),
        ),
    ],
)
def test_an_analysis_prints_its_summary_and_its_files(
    trained: Path, pictures: Path, tmp_path: Path, analysis: str, options: tuple[object], patterns: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    result = run("analyse", analysis, "--checkpoint", trained, "--data", pictures, "-o", out, "--per-domain", 8, *options)
    for file in ANALYSES[analysis].files:
        assert (out / file).stat().st_size > 0
        assert str(out / file) in result.output
    for pattern in patterns:
        assert re.search(f"^{pattern}", result.output, re.MULTILINE), result.output
    numbers = json.loads((out / f"{analysis}.json").read_text())
    assert numbers["model"] == "tiny, efdmix-flow"
    assert numbers["settings"] == load_classifier(trained).settings
    assert numbers["pictures"] == {"day": 8, "night": 8, "rain": 8}


@pytest.mark.parametrize("analysis", ANALYSES)
def test_streamed_pictures_give_the_same_numbers(trained: Path, pictures: Path, tmp_path: Path, analysis: str) -> None:
    found = []
    for storage in ("memory", "stream"):
        command = ["analyse", analysis, "--checkpoint", trained, "--data", pictures, "-o", tmp_path / storage]
        run(*command, "--per-domain", 4, "--storage", storage)
        found.append(json.loads((tmp_path / storage / f"{analysis}.json").read_text()))
    assert found[0] == found[1]


def test_projection_needs_the_classes_of_the_model(trained: Path, tmp_path: Path) -> None:
    other = draw(tmp_path / "other", ("day", "night", "rain"), ("ant", "cat", "dog"), 3)
    command = ["analyse", "projection", "--checkpoint", trained, "--data", other, "-o", tmp_path / "out"]
    assert "the classes ant, cat, dog are not those of the model (cat, dog)" in run(*command, code=2).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("histogramm",), "did you mean 'histogram'?"),
        (("ties", "--channel", "3"), "ties has no option 'channel' (--channel)"),
        (("tsne", "--stage", "stage1", "--stage", "stage2"), "one stage"),
        (("tsne", "--stage", "stage1,stage2"), "one stage"),
        (("histogram", "--channel", "99999"), "99999"),
        (("histogram", "--domains", "snow"), "'snow'"),
        (("histogram", "--classes", "giraffe"), "'giraffe'"),
    ],
)
def test_wrong_arguments_are_named(
    trained: Path, pictures: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run("analyse", *arguments, "--checkpoint", trained, "--data", pictures, "-o", tmp_path / "out", code=2)
    assert message in result.output


def test_pictures_are_required_unless_the_model_was_trained_on_digits(trained: Path, tmp_path: Path) -> None:
    result = run("analyse", "ties", "--checkpoint", trained, "-o", tmp_path / "out", code=2)
    assert "was trained on mine" in result.output
    assert "--data" in result.output


def test_features_are_taken_after_the_first_mixed_stage(pictures: Path, tmp_path: Path) -> None:
    run(*training(pictures, tmp_path / "run", stages="stage2,stage3"))
    result = run("analyse", "histogram", "--checkpoint", tmp_path / "run", "--data", pictures, "-o", tmp_path / "out")
    assert "stage2, channel" in result.output


def test_pictures_are_read_at_the_stored_size_of_the_model(
    trained: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(dataset: str, sources: object, size: int, **_: object) -> None:
        raise ValueError(f"read at {size}")

    monkeypatch.setattr(analyses, "load_classifier", lambda *a: load_classifier(*a)._replace(stored_size=20))
    monkeypatch.setattr(analyses, "load_dataset", stop)
    command = ["analyse", "ties", "--checkpoint", trained, "--data", pictures, "-o", tmp_path / "out"]
    assert "read at 20" in run(*command, code=2).output
