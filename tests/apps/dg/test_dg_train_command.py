from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dg_commands import Interrupted, draw, run, training

from efdm.data import datasets
from efdm.data.domains import load_domains
from efdm.dg import Settings, count_correct, load_classifier
from efdm.lab import load_recipe


def test_a_training_leaves_a_model_and_tells_how_good_it_is(trained: Path, pictures: Path) -> None:
    told = json.loads((trained / "settings.json").read_text())
    assert (told["method"], told["data"], told["precision"], told["speed"]) == ("efdmix", "mine", "fp32", "plain")
    assert (told["train_domains"], told["test_domains"]) == (["day", "night"], ["rain"])
    assert (trained / "done").exists()
    model, classes, size, settings, *_ = load_classifier(trained / "model.safetensors")
    assert (classes, size, settings["data"]) == (["cat", "dog"], 16, "mine")
    data = load_domains(pictures, size=16)
    record = json.loads((trained / "records.jsonl").read_text().splitlines()[-1])
    assert list(count_correct(model, data, data.select("rain", "test"), 16)) == record["test"]["rain"]


def test_without_a_test_domain_all_is_learnt_and_that_is_said(pictures: Path, tmp_path: Path) -> None:
    result = run(*training(pictures, tmp_path / "out", method="erm"))
    assert result.exit_code == 0, result.output
    assert "learning from day, night, rain, no domain kept for a test" in result.output
    assert "nothing is known of new ones" in result.output
    assert f"efdm dg predict {tmp_path / 'out' / 'model.safetensors'}" in result.output


def test_settings_follow_the_pictures(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def stop(settings: Settings, *_: object, **__: object) -> None:
        seen.append(settings)
        raise ValueError("enough")

    monkeypatch.setattr("efdm.apps.dg_train.train", stop)
    start = ["train", "--data", pictures, "-o", tmp_path / "out", "--backbone", "tiny", "--weights", "random", "--size", 16]
    run(*start, "--train-domains", "day,night", "--method", "efdmix-labels")
    run(*start, "--test-domains", "day", "--set", "augmentation=none", "--stages", "stage1,stage2", "--device", "cpu")
    run("train", "--data", "digits", "-o", tmp_path / "out", "--set", "iterations=7")
    first, second, third = seen
    assert (first.train_domains, first.test_domains) == (("day", "night"), ("rain",))
    assert (first.batches, first.domains_per_batch, first.batch, first.iterations) == ("domains", 2, 20, 300)
    assert (second.train_domains, second.test_domains) == (("night", "rain"), ("day",))
    assert (second.augmentation, second.stages, second.batches) == ("none", ("stage1", "stage2"), "uniform")
    assert (third.data, third.backbone, third.size, third.iterations) == ("digits", "tiny", 32, 7)
    assert (first.stages, third.stages) == (Settings.stages, load_recipe("digits_demo").settings["stages"])


def test_stages_follow_the_backbone(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    seen: list[Settings] = []
    monkeypatch.setattr("efdm.apps.dg_train.train", lambda settings, *_, **__: seen.append(settings))
    start = ["train", "--data", pictures, "-o", tmp_path / "out", "--weights", "random", "--size", 32, "--backbone"]
    result = run(*start, "mobilenetv2_050")
    assert "(stages blocks.1, blocks.2, blocks.4)" in result.output
    run(*start, "mobilenetv2_050", "--stages", "blocks.0")
    assert [s.stages for s in seen] == [("blocks.1", "blocks.2", "blocks.4"), ("blocks.0",)]


def test_our_own_backbones_begin_with_random_weights(pictures: Path, tmp_path: Path) -> None:
    command = training(pictures, tmp_path / "out")
    at = command.index("--weights")
    result = run(*command[:at], *command[at + 2 :])
    assert result.exit_code == 0, result.output
    assert "weights random" in result.output


def test_an_interrupted_training_is_resumed_as_it_would_have_been(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*training(pictures, tmp_path / "run", iterations=6), "--test-domains", "rain", "--set", "log_every=1"]
    whole = [str(tmp_path / "whole") if word == tmp_path / "run" else word for word in command]
    assert run(*whole).exit_code == 0
    with monkeypatch.context() as patched:
        Interrupted(patched, after=3)
        result = run(*command)
    assert result.exit_code == 130
    hint = f"efdm dg train --resume --data {pictures} -o {tmp_path / 'run'}"
    assert hint in result.output
    assert "resume it (--resume, in Python resume=True), or choose another folder" in run(*command).output
    other = draw(tmp_path / "other", ("day", "night", "rain"), ("cat", "cow", "dog"), 2)
    result = run("train", "--resume", "--data", other, "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert "not the pictures that the run" in result.output
    result = run("train", "--resume", "--data", pictures, "-o", tmp_path / "run", "--lr", 9)
    assert "began with lr 0.001, not 9.0" in result.output
    result = run(*hint.split()[2:])
    assert result.exit_code == 0, result.output
    one, two = (load_classifier(tmp_path / name / "model.safetensors").model.state_dict() for name in ("run", "whole"))
    assert all(torch.equal(one[key], two[key]) for key in two)


def test_a_finished_run_is_seen_before_pictures_are_read(
    trained: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("pictures were read"))
    result = run(*training(pictures, trained))
    assert result.exit_code == 2
    assert "has a finished run" in result.output
    result = run("train", "--data", pictures, "-o", trained, "--resume")  # a script repeats this until all is done
    assert result.exit_code == 0, result.output
    assert f"is finished: {trained / 'model.safetensors'}" in result.output
    result = run("train", "--data", pictures, "-o", trained, "--resume", "--iterations", 41)
    assert result.exit_code == 2
    assert "began with iterations 40, not 41" in result.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--test-domains", "rainy", "did you mean 'rain'?"),
        ("--test-domains", "day,night,rain", "leaves no domain to learn from"),
        ("--stages", "stage9", "has no stage 'stage9'. Did you mean 'stage3'"),
        ("--set", "schedule=cosin", "did you mean 'cosine'?"),
        ("--batch", 1, "give a batch of at least 2"),
    ],
)
def test_what_names_can_tell_is_told_before_pictures_are_read(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: object, message: str
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("pictures were read"))
    result = run(*training(pictures, tmp_path / "out"), option, value)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())


def test_another_run_is_not_resumed_and_that_is_told_before_pictures_are_read(
    trained: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.json").write_text((trained / "settings.json").read_text())
    (tmp_path / "checkpoint.pt").touch()
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("pictures were read"))
    result = run("train", "--resume", "--data", pictures, "-o", tmp_path, "--iterations", 41)
    assert result.exit_code == 2
    assert "began with iterations 40, not 41" in result.output


def test_the_plan_has_the_options_and_stages_that_matter(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efdm.apps.dg_train.train", lambda *_, **__: None)
    for method, told in {
        "erm": "erm in tiny, weights random: 1 iteration of 8 pictures on cpu",
        "mixup": "mixup (p 0.9, alpha 0.2) in tiny, weights random",
        "efdmix": "efdmix (p 0.9, alpha 0.1) in tiny (stages stage1, stage2, stage3), weights random",
    }.items():
        more = () if method == "erm" else ("--set", "options.p=0.9")
        assert told in run(*training(pictures, tmp_path / "out", method=method, iterations=1), *more).output


def test_there_must_be_something_to_resume(pictures: Path, tmp_path: Path) -> None:
    result = run("train", "--resume", "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "leave --resume out" in result.output


def test_damaged_pictures_are_left_out_of_training_and_told(pictures: Path, tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("day", "night"), ("cat", "dog"), 5)
    (source / "day" / "cat" / "[torn].png").write_bytes(b"PNG")
    result = run(*training(source, tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "1 of 21 pictures (day/cat/[torn].png is not a picture" in result.output
    assert "[torn].png" in (tmp_path / "out" / "pictures.json").read_text()
    for number in range(4):
        (source / "day" / "cat" / f"torn{number}.png").write_bytes(b"PNG")
    told = run(*training(source, tmp_path / "more")).output
    assert [f"torn{number}.png" in told for number in range(4)] == [True, True, False, False]
    assert "and 2 more" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efdmx"}, "did you mean 'efdmix'?"),
        ({"method": "adain"}, "--method='adain' is called 'mixstyle' here"),
        ({"method": ""}, "--method is empty (a variable of the shell that is not set?)"),
        ({"test_domains": ""}, "a list of names is empty (a variable of the shell"),
        ({"set": "iterations=4"}, "--iterations and --set iterations both say what iterations is"),
        ({"backbone": "resnet1"}, "is no model of timm"),
        ({"weights": "nowhere.pth"}, "weights='nowhere.pth' is no file"),
        ({"test_domains": "snow"}, "--test-domains='snow' is not one of 'day', 'night', 'rain'"),
        ({"test_domains": "day,night,rain"}, "--test-domains day,night,rain leaves no domain to learn from; name fewer"),
        ({"batch": 999}, "do not fill one batch of 999"),
        ({"data": "nowhere"}, "nowhere"),
        ({"stages": "layer9"}, "layer9"),
        ({"lr": 1e30}, "try a lower learning rate"),
        ({"set": 'options={"p": 0.5, "q": 1}'}, "has no option 'q'"),
        ({"set": "options.q=1"}, "has no option 'q'"),
        ({"set": "p=1.0"}, "--set p=1.0: p is an option of methods; write --set options.p=1.0"),
        ({"out": __file__}, "is a file; choose a folder"),
        ({"batch": 1}, "give a batch of at least 2, or choose erm"),
        ({"train_domains": "day", "method": "efdmix-labels"}, "give two domains or more, or choose efdmix"),
        ({"test_domains": "cat"}, "--test-domains cat: that is a class here, the domains are day, night, rain; are your"),
        ({"weights": __file__}, "can be read safely; expected .safetensors"),
    ],
)
def test_what_is_wrong_with_a_training_is_one_sentence(
    pictures: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    if changes.get("backbone"):
        pytest.importorskip("timm")
    result = run(*training(pictures, tmp_path / "out", **changes))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output
