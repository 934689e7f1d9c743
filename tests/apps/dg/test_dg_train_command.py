import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from dg_commands import Interrupted, draw, run, studying, training
from runs import lines

from efdm.data.domains import load_domains
from efdm.dg import Settings, count_correct, load_classifier
from efdm.lab import load_recipe
from efdm.lab.dg_preparation import default_settings


def test_a_run_leaves_a_model_and_its_accuracy(trained: Path, pictures: Path) -> None:
    settings = json.loads((trained / "settings.json").read_text())
    assert [settings[name] for name in ("method", "data", "precision", "speed")] == ["efdmix-flow", "mine", "fp32", "plain"]
    assert (settings["train_domains"], settings["test_domains"]) == (["day", "night"], ["rain"])
    assert (trained / "done").exists()
    model, classes, size, settings, *_ = load_classifier(trained / "model.safetensors")
    assert (classes, size, settings["data"]) == (["cat", "dog"], 16, "mine")
    data = load_domains(pictures, size=16)
    record = lines(trained / "records.jsonl")[-1]
    assert list(count_correct(model, data, data.select("rain", "test"), 16)) == record["test"]["rain"]


def test_without_a_test_domain_all_domains_are_trained_on(pictures: Path, tmp_path: Path) -> None:
    result = run(*training(pictures, tmp_path / "my run", method="erm"))
    assert "training domains: day, night, rain; held-out domains: none" in result.output
    assert "accuracy on a new domain is unknown" in result.output
    assert f"efdm dg predict '{tmp_path / 'my run' / 'model.safetensors'}'" in result.output


def test_the_help_text_shows_the_defaults_of_folders_and_of_digits() -> None:
    output = run("train", "--help", COLUMNS="400", TERM="dumb").output
    digits = default_settings("digits")
    for name in ("lr", "size"):
        (line,) = re.findall(rf"--{name} .*Default: ([^.]*(?:\.\d+)?) \(digits: (.*)\)\.", output)
        assert [float(value) for value in line] == [getattr(Settings, name), digits[name]]
    for name in ("iterations", "backbone", "precision", "speed"):
        assert re.search(rf"--{name} .*\(digits: {digits[name]}\)", output), name


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Stop before training; the list receives the settings of every run."""
    seen: list[Settings] = []

    def stop(settings: Settings, *_: object, **__: object) -> None:
        seen.append(settings)
        raise ValueError("stopped")

    monkeypatch.setattr("efdm.apps.cli.dg.train.train", stop)
    return seen


def test_settings_follow_the_pictures(pictures: Path, tmp_path: Path, planned: list[Settings]) -> None:
    start = ["train", "--data", pictures, "-o", tmp_path / "out", "--backbone", "tiny", "--weights", "random", "--size", 16]
    run(*start, "--train-domains", "day,night", "--method", "efdmix-labels", code=2)
    run(
        *start, "--test-domains", "day", "--set", "augmentation=none", "--stages", "stage1,stage2", "--device", "cpu", code=2
    )
    run("train", "--data", "digits", "-o", tmp_path / "out", "--set", "iterations=7", code=2)
    first, second, third = planned
    assert (first.train_domains, first.test_domains) == (("day", "night"), ("rain",))
    assert (first.batches, first.domains_per_batch, first.batch, first.iterations) == ("domains", 2, 20, 300)
    assert (second.train_domains, second.test_domains) == (("night", "rain"), ("day",))
    assert (second.augmentation, second.stages, second.batches) == ("none", ("stage1", "stage2"), "uniform")
    assert (third.data, third.backbone, third.size, third.iterations) == ("digits", "tiny", 32, 7)
    assert third.lr == load_recipe("digits_demo").settings["lr"]
    assert (first.stages, third.stages) == (Settings.stages, load_recipe("digits_demo").settings["stages"])


def test_stages_follow_the_backbone(pictures: Path, tmp_path: Path, planned: list[Settings]) -> None:
    start = ["train", "--data", pictures, "-o", tmp_path / "out", "--weights", "random", "--size", 32, "--backbone"]
    assert "(stages blocks.1, blocks.2, blocks.4)" in run(*start, "mobilenetv2_050", code=2).output
    run(*start, "mobilenetv2_050", "--stages", "blocks.0", code=2)
    assert [settings.stages for settings in planned] == [("blocks.1", "blocks.2", "blocks.4"), ("blocks.0",)]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("erm", "erm in tiny, weights random: 1 iteration of 8 pictures on cpu"),
        ("mixup", "mixup (p 0.9, alpha 0.2) in tiny, weights random"),
        ("efdmix", "efdmix (p 0.9, alpha 0.1) in tiny (stages stage1, stage2, stage3), weights random"),
    ],
)
def test_the_plan_shows_the_options_and_stages_of_the_method(
    pictures: Path, tmp_path: Path, planned: list[Settings], method: str, text: str
) -> None:
    options = () if method == "erm" else ("--set", "options.p=0.9")
    assert text in run(*training(pictures, tmp_path / "out", method=method, iterations=1), *options, code=2).output


def test_backbones_of_efdm_start_with_random_weights(pictures: Path, tmp_path: Path, planned: list[Settings]) -> None:
    command = training(pictures, tmp_path / "out")
    at = command.index("--weights")
    assert "weights random" in run(*command[:at], *command[at + 2 :], code=2).output


def test_an_interrupted_run_resumes(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [*training(pictures, tmp_path / "run", iterations=6), "--test-domains", "rain", "--set", "log_every=1"]
    with monkeypatch.context() as patched:
        Interrupted(patched, after=3)
        result = run(*command, code=130)
    assert "repeat the command with --resume" in result.output
    assert "--resume" in run(*command, code=2).output
    other = draw(tmp_path / "other", ("day", "night", "rain"), ("cat", "cow", "dog"), 2)
    assert str(tmp_path / "run") in run("train", "--resume", "--data", other, "-o", tmp_path / "run", code=2).output
    other = draw(tmp_path / "fewer", ("day", "rain"), ("cat", "dog"), 2)
    output = run("train", "--resume", "--data", other, "-o", tmp_path / "run", code=2).output
    assert "'night' is not one of 'day', 'rain' (--data)" in " ".join(output.split())
    result = run("train", "--resume", "--data", pictures, "-o", tmp_path / "run", "--lr", 9, code=2)
    assert re.search(r"lr\b.*0\.001.* 9\.0", result.output)
    assert "trained efdmix-flow" in run(*command, "--resume").output


@pytest.mark.usefixtures("no_reading")
def test_a_finished_run_is_recognized_before_pictures_are_read(trained: Path, pictures: Path) -> None:
    assert "finished" in run(*training(pictures, trained), code=2).output
    assert f"finished: {trained / 'model.safetensors'}" in run("train", "--data", pictures, "-o", trained, "--resume").output
    result = run("train", "--data", pictures, "-o", trained, "--resume", "--iterations", 41, code=2)
    assert re.search(r"iterations\b.*40.* 41", result.output)


@pytest.mark.usefixtures("no_reading")
def test_a_finished_run_is_not_resumed_with_other_data(trained: Path, tmp_path: Path) -> None:
    other = draw(tmp_path / "mine", ("day", "night", "rain"), ("cat", "dog"), 2)
    assert "other data" in run("train", "--data", other, "-o", trained, "--resume", code=2).output


@pytest.mark.usefixtures("no_reading")
def test_a_damaged_checkpoint_is_reported_before_pictures_are_read(trained: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text((trained / "settings.json").read_text())
    (tmp_path / "checkpoint.pt").write_bytes(b"torn")
    assert "damaged" in run("train", "--resume", "--data", pictures, "-o", tmp_path, code=2).output


def test_damaged_pictures_are_skipped_and_reported(tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("day", "night"), ("cat", "dog"), 5)
    for number in range(5):
        (source / "day" / "cat" / f"[torn]{number}.png").write_bytes(b"PNG")
    result = run(*training(source, tmp_path / "out"))
    assert f"skipped 5 of 25 pictures ({source}/day/cat/[torn]0.png" in result.output
    assert "and 2 more" in result.output
    record = (tmp_path / "out" / "pictures.json").read_text()
    assert "day/cat/[torn]4.png is" in record
    assert str(tmp_path) not in record
    run("train", "--data", source, "-o", tmp_path / "out", "--resume")


@pytest.mark.usefixtures("no_reading")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efdmx"}, "did you mean 'efdmix'?"),
        ({"method": "adain"}, "'mixstyle'"),
        ({"set": "iterations=4"}, "(--iterations)"),
        ({"set": "schedule=cosin"}, "'cosine'"),
        ({"set": 'options={"p": 0.5, "q": 1}'}, "'q'"),
        ({"set": "p=1.0"}, "options.p=1.0"),
        ({"backbone": "resnet1"}, "(--backbone)"),
        ({"weights": "nowhere.pth"}, "'random', 'timm' or the path of a checkpoint (--weights)"),
        ({"weights": "timm"}, "'random' or a file (--weights)"),
        ({"weights": __file__}, ".safetensors"),
        ({"test_domains": "rainy"}, "did you mean 'rain'?"),
        ({"test_domains": "day,night,rain"}, "no domain to train on"),
        ({"test_domains": "cat"}, "is a class"),
        ({"test_domains": ""}, "(--test-domains)"),
        ({"stages": "stage9"}, "any module name works (--stages)"),
        ({"batch": 1}, "efdmix"),
        ({"train_domains": "day", "method": "efdmix-labels"}, "efdmix-labels"),
        ({"data": "nowhere"}, "nowhere"),
        ({"out": __file__}, "is a file"),
        ({"size": 40_000}, "40000 x 40000 pixels need 819 GB"),
    ],
)
def test_wrong_arguments_are_named_before_pictures_are_read(
    pictures: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    result = run(*training(pictures, tmp_path / "out", **changes), code=2)
    assert message in " ".join(result.output.split())


@pytest.mark.usefixtures("no_reading")
def test_one_class_is_refused(tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("day", "night"), ("dog",))
    assert "1 class (dog), expected at least 2" in run(*training(source, tmp_path / "out"), code=2).output
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_reading")
def test_a_folder_inside_the_data_is_refused(pictures: Path, recipe: Path, trained: Path) -> None:
    inside = pictures / "day" / "out"
    analysis = ["analyse", "ties", "--checkpoint", trained, "--data", pictures, "-o", inside]
    for command in (training(pictures, inside), studying(recipe, pictures, inside), analysis):
        assert f"{inside} is inside the data, {pictures}" in run(*command, code=2).output
    assert not inside.exists()


def test_other_domains_are_neither_read_nor_counted(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [*training(pictures, tmp_path / "out", iterations=6, train_domains="day", test_domains="night"), "--set"]
    with monkeypatch.context() as patched:
        Interrupted(patched, after=3)
        result = run(*command, "log_every=1", code=130)
    assert "24 pictures of 2 classes (cat, dog); training domains: day; held-out domains: night" in result.output
    assert "reading pictures: 24/24" in result.output
    run("train", "--resume", "--data", pictures, "-o", tmp_path / "out")
    record = lines(tmp_path / "out" / "records.jsonl")[-1]
    assert list(record["val"]) == ["day", "night"]


@pytest.mark.usefixtures("no_reading")
def test_pictures_that_do_not_fit_in_memory_can_be_streamed(
    recipe: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = draw(tmp_path / "mine", ("day", "night"), ("cat", "dog"), 50)
    monkeypatch.setattr("efdm.data.memory.available_memory", lambda device: 150_000)
    remedy = "200 pictures of 16 x 16 pixels .* storage='stream'"
    assert re.search(rf"{remedy} \(--size, --storage\)", run(*training(source, tmp_path / "out"), code=2).output)
    assert re.search(rf"{remedy} \(--set size, --storage\)", run(*studying(recipe, source, tmp_path / "out"), code=2).output)
    analysis = ["analyse", "ties", "--checkpoint", trained, "--data", source, "-o", tmp_path / "out"]
    assert re.search(rf"{remedy} \(--storage\)", run(*analysis, code=2).output)


@pytest.mark.parametrize(("changes", "message"), [({"batch": 999}, "999"), ({"lr": 1e30}, "lower")])
def test_problems_found_with_the_pictures_are_named(
    pictures: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in run(*training(pictures, tmp_path / "out", **changes), code=2).output


def test_streamed_pictures_give_the_same_run(trained: Path, pictures: Path, tmp_path: Path) -> None:
    run(*training(pictures, tmp_path / "out", iterations=40, lr=0.1, test_domains="rain"), "--storage", "stream")
    first, second = (load_classifier(folder).model.state_dict() for folder in (trained, tmp_path / "out"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    run(*training(pictures, tmp_path / "other"), "--storage", "disk", code=2)


@pytest.mark.parametrize(("domain", "remedy"), [("day", "replace or delete it"), ("rain", "--resume")])
def test_a_damaged_picture_of_a_stream_is_named(tmp_path: Path, domain: str, remedy: str) -> None:
    """Pictures of the test domain are read at the end of the run, from which it can be resumed."""
    source, out = draw(tmp_path / "mine", ("day", "night", "rain"), ("cat", "dog"), 2), tmp_path / "out"
    whole = (source / domain / "cat" / "1.png").read_bytes()
    (source / domain / "cat" / "1.png").write_bytes(b"")
    result = run(*training(source, out, test_domains="rain", batch=4), "--storage", "stream", code=2)
    assert "Traceback" not in result.output
    assert re.search(rf"{domain}/cat/1.png is empty.*{remedy}", result.output.splitlines()[-1])
    (source / domain / "cat" / "1.png").write_bytes(whole)
    if remedy == "--resume":
        run("train", "--resume", "--data", source, "-o", out, "--storage", "stream")
