import json
from pathlib import Path

import pytest
from dg_commands import Interrupted
from reid_commands import run, sets, training
from runs import lines

from efdm.data.people import read_people
from efdm.reid import load_embedder
from efdm.reid.protocols import make_trials


def last_record(out: Path) -> dict[str, object]:
    return lines(out / "records.jsonl")[-1]


def test_a_run_writes_a_model_records_and_drawn_queries(trained: Path, folder: Path) -> None:
    embedder = load_embedder(trained)
    assert embedder.size == (32, 16)
    record = last_record(trained)
    assert {name: found["protocol"] for name, found in record["test"].items()} == {
        "market": "official", "cuhk01": "camera-pair",
    }  # fmt: skip
    data = read_people(folder / "cuhk01", size=(32, 16))
    written = json.loads((trained / "trials-cuhk01.json").read_text())["trials"]
    assert [trial["query"] for trial in written] == [
        [data.names[i] for i in trial.query.tolist()] for trial in make_trials(data, "camera-pair")
    ]
    assert not (trained / "trials-market.json").exists()


def test_the_plan_and_the_scores_are_printed(folder: Path, tmp_path: Path) -> None:
    result = run(*training(folder, tmp_path / "run", *sets(folder, "grid", option="--test"), "--method", "erm"))
    assert "market: 18 training pictures of 3 people, 3 cameras" in result.output
    assert "erm in tiny, weights random: 2 iterations of 4 pictures on cpu" in result.output
    assert "expected 12936" in result.output  # a partial copy is reported
    assert "official: the published queries and gallery." in result.output
    line = next(line for line in result.output.splitlines() if line.startswith("grid ") and "official" in line)
    assert float(line.split()[1]) == pytest.approx(100 * last_record(tmp_path / "run")["test"]["grid"]["mAP"], abs=0.05)


def test_defaults_follow_the_data_and_the_backbone(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from efdm.apps.cli.reid import train as module

    def stop(*given: object, **_: object) -> None:
        found.append(given[0])
        raise KeyboardInterrupt

    found = []
    monkeypatch.setattr(module, "train", stop)
    result = run(
        "train", *sets(folder, "market"), "-o", tmp_path / "run", "--backbone", "osnet_x0_25", "--device", "cpu", code=130
    )
    assert "interrupted before the first step; repeat the command without --resume" in result.output
    (settings,) = found
    assert (settings.method, settings.stages, settings.iterations) == ("efdmix-flow", ("conv2", "conv3"), 300)
    assert (settings.size, settings.classifier_lr) == ((256, 128), 1.0)


def test_a_network_without_strides_is_mixed_after_its_first_two_stages(folder: Path, tmp_path: Path) -> None:
    words = ["--backbone", "tiny", "--size", "32,16", "--batch", "4", "--iterations", "1", "--device", "cpu"]
    result = run("train", *sets(folder, "market"), "-o", tmp_path / "run", *words, "--set", "classifier_lr=1")
    assert "stages stage1, stage2" in result.output


def test_an_interrupted_run_resumes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    command = training(folder, out, "--set", "log_every=1", "--set", "save_every=1")
    with monkeypatch.context() as patched:
        Interrupted(patched, after=0)
        result = run(*command, code=130)
    assert "repeat the command with --resume" in result.output
    assert not (out / "done").exists()
    run(*command, "--resume")
    assert last_record(out)["step"] == 2
    assert "finished" in run(*command, "--resume").output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--test", "market={folder}/grid"], ["'market'", "two data sets", "--test"]),
        (["--data", "{folder}/nowhere"], ["nowhere does not exist"]),
        (["--data", "other={folder}/market", "--layout", "other=grid"], ["not named as in grid", "--layout"]),
        (["--layout", "grid"], ["NAME=LAYOUT", "--layout"]),
        (["--test", "cuhk01={folder}/cuhk01", "--set", 'protocols={{"cuhk01": "oficial"}}'], ["'oficial'", "'official'"]),
        (["--test", "market={folder}/market", "--set", 'protocols={{"market": "person-camera"}}'], ["training pictures"]),
        (["--set", "size=32"], ["size", "--size"]),
        (["--method", "efdm"], ["'efdmix'"]),
        (["--test", "grid={folder}/grid", "--split", "12"], ["from 0 to 9", "--split"]),
        (["--set", "triplet_weight=1"], ["triplet", "--set triplet_weight"]),
        (["--test", "other={folder}/grid/../market"], ["'market' and 'other'", "(--data, --test)"]),
        (["--method", "efdmix-labels", "--set", "domain_labels=datasets"], ["at least 2", "(--data, --method)"]),
        (["--set", 'protocols={{"market": "official"}}'], ["'market'", "--test)"]),
    ],
    ids=[
        "name", "path", "layout", "pair", "protocol", "seen", "size", "method", "split", "triplet", "folder", "data", "test",
    ],
)  # fmt: skip
def test_mistakes_are_explained_before_training(more: list[str], words: list[str], folder: Path, tmp_path: Path) -> None:
    result = run(*training(folder, tmp_path / "run", *(word.format(folder=folder) for word in more)), code=2)
    assert "reading" not in result.output
    for word in words:
        assert word in result.output.splitlines()[-1], result.output
    assert not (tmp_path / "run").exists()
