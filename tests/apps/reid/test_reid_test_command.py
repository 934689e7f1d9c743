import json
from pathlib import Path

import pytest
from reid_commands import run, sets
from runs import lines


def test_scores_equal_those_of_the_run(trained: Path, folder: Path, tmp_path: Path) -> None:
    words = ["test", trained, *sets(folder, "market", "cuhk01"), "--device", "cpu", "-o", tmp_path / "scores.json"]
    assert "camera-pair: one query per person" in run(*words).output
    written = json.loads((tmp_path / "scores.json").read_text())
    record = lines(trained / "records.jsonl")[-1]
    assert written["test"] == record["test"]
    assert written["settings"] == record["settings"]


def test_reranking_protocol_seed_and_split_change_the_scores(trained: Path, folder: Path, tmp_path: Path) -> None:
    def scores(name: str, *more: object) -> dict[str, object]:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        result = run("test", trained, *sets(folder, name), "--device", "cpu", "-o", out, *more)
        assert ("k-reciprocal" in result.output) == ("--rerank" in more)
        return json.loads(out.read_text())["test"][name]

    plain, again = scores("market"), scores("market", "--rerank")
    assert plain["mAP"] != again["mAP"]
    drawn = scores("market", "--protocol", "person-camera")
    assert (drawn["protocol"], drawn["queries"], drawn["gallery"]) == ("person-camera", 9, 9)
    assert scores("grid")["queries"] == scores("grid", "--split", "9")["queries"] == 3


@pytest.mark.parametrize(
    ("name", "protocol", "warned"),
    [("market", "person-camera", True), ("market", "official", False), ("cuhk01", "camera-pair", False)],
)
def test_scores_on_training_pictures_are_marked(name: str, protocol: str, warned: bool, trained: Path, folder: Path) -> None:
    result = run("test", trained, *sets(folder, name), "--protocol", protocol, "--device", "cpu")
    assert (f"training pictures ({name})" in result.output) == warned


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--data", "{folder}/nowhere"], ["nowhere does not exist"]),
        (["--data", "{folder}/market", "--protocol", "oficial"], ["'official'", "--protocol"]),
        (["--data", "{folder}/grid", "--split", "12"], ["from 0 to 9", "--split"]),
        (["--data", "{folder}/cuhk01", "--protocol", "official"], ["camera-pair", "--protocol"]),
        (["--data", "{folder}/market", "-o", "scores.csv"], [".json", "--out"]),
        (["--data", "{folder}/market", "--data", "{folder}/market"], ["'market'", "--data"]),
    ],
    ids=["path", "protocol", "split", "no gallery", "extension", "twice"],
)
def test_mistakes_are_explained(more: list[str], words: list[str], trained: Path, folder: Path) -> None:
    result = run("test", trained, "--device", "cpu", *(word.format(folder=folder) for word in more), code=2)
    for word in words:
        assert word in result.output.splitlines()[-1], result.output


def test_a_folder_without_a_model_is_named(folder: Path, tmp_path: Path) -> None:
    assert "model.safetensors" in run("test", tmp_path, *sets(folder, "market"), "--device", "cpu", code=2).output


def test_damaged_pictures_are_named(trained: Path, tmp_path: Path) -> None:
    from people import make_folders

    make_folders(tmp_path / "mine", cameras=3)
    (tmp_path / "mine" / "0001" / "c1_0.png").write_bytes(b"no picture")
    assert "c1_0.png" in run("test", trained, *sets(tmp_path, "mine"), "--device", "cpu", code=2).output
