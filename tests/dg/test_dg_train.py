import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dg_runs import settings
from runs import Watch, lines

from efdm.data.domains import DomainSet
from efdm.dg.classifier import load_classifier
from efdm.dg.evaluate import count_correct
from efdm.dg.settings import Settings
from efdm.dg.training import Trained, train, train_together
from efdm.errors import RunFolderError, SettingError
from efdm.progress import Progress
from efdm.recognition.settings import identity, resolved, run_label

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture(scope="module")
def whole(data: DomainSet) -> tuple[Settings, Trained, Watch]:
    """Return settings, result and losses of an uninterrupted run."""
    wanted, watch = settings(method="efdmix"), Watch()
    return wanted, train(wanted, data, progress=watch), watch


def test_content_of_a_record(whole: tuple[Settings, Trained, Watch], data: DomainSet) -> None:
    wanted, trained, watch = whole
    assert [(r["step"], r["last"]) for r in trained.records] == [(3, False), (6, True)]
    last = trained.records[-1]
    assert last["run"] == identity(wanted)
    assert Settings(**last["settings"]) == resolved(wanted)
    assert (last["seed"], last["lanes"], last["device"]) == (0, 1, "cpu")
    assert last["loss"] == pytest.approx(watch.losses[run_label(wanted), 6], rel=1e-5)
    assert {domain: count for domain, (_, count) in last["val"].items()} == {
        d: len(data.splits[d]["val"]) for d in data.splits
    }
    assert {domain: count for domain, (_, count) in last["test"].items()} == {"outline": 60}
    correct, _ = count_correct(trained.model, data, data.select("outline", "test"), 32)
    assert last["test"]["outline"][0] == correct
    assert last["seconds"] > trained.records[0]["seconds"] > 0
    assert last["per_second"] == pytest.approx(6 / last["seconds"], rel=1e-3)
    assert last["environment"]["versions"]["torch"]
    assert json.loads(json.dumps(last)) == last
    assert not trained.model.training


def test_a_run_resumed_on_another_device_names_both(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings(), data, tmp_path / "run", progress=Watch(4))
    path = tmp_path / "run" / "checkpoint.pt"
    torch.save({**torch.load(path, weights_only=True), "devices": ["cuda"]}, path)
    found = train(settings(), data, tmp_path / "run", resume=True)
    assert [r["device"] for r in found.records] == ["cpu", "cuda and cpu"]


def test_files_of_a_finished_run(data: DomainSet, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    trained = train(settings(log_every=2, size=28), data, str(folder))
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock", "done", "environment.json", "log.jsonl", "model.safetensors", "records.jsonl", "settings.json",
    ]  # fmt: skip
    assert lines(folder / "records.jsonl") == trained.records
    log = lines(folder / "log.jsonl")
    assert [(r["phase"], r["iteration"]) for r in log] == [("train", 2), ("train", 4), ("train", 6)]
    assert {"loss", "lr", "per_second"} <= set(log[0])
    assert log[1]["lr"] == pytest.approx(0.025), "half of a cosine"
    found = load_classifier(folder / "model.safetensors")
    assert (found.classes, found.size, found.stored_size) == (data.classes, 28, 32)
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(found.model(images), trained.model(images))


def test_records_after_the_last_checkpoint_are_written_again(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        train(settings(), data, tmp_path, progress=Watch(4, MemoryError))
    path = tmp_path / "records.jsonl"
    (newer,) = lines(path)  # of step 3; the checkpoint is older
    path.write_text(json.dumps({**newer, "loss": 77}) + '\n{"step": 4')  # cut off by the crash
    found = train(settings(), data, tmp_path, resume=True)
    assert [(r["step"], r["loss"] < 77) for r in found.records] == [(3, True), (6, True)]


def test_a_run_resumes_without_its_initial_weights_file(data: DomainSet, tmp_path: Path) -> None:
    first = train(settings(iterations=1), data, tmp_path / "first")
    begin = tmp_path / "begin.safetensors"
    begin.write_bytes((tmp_path / "first" / "model.safetensors").read_bytes())
    wanted = settings(weights=str(begin), lr=1e-9)
    with pytest.raises(KeyboardInterrupt):
        train(wanted, data, tmp_path / "run", progress=Watch(2))
    begin.unlink()
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert len({r["run"] for r in found.records}) == 1
    assert all(r["settings"]["weights_sha256"] for r in found.records)
    torch.testing.assert_close(*(next(t.model.parameters()) for t in (found, first)))


def test_a_run_without_a_folder_is_not_resumed(data: DomainSet) -> None:
    with pytest.raises(SettingError, match="without a folder"):
        train(settings(), data, resume=True)


def test_a_folder_takes_one_run_at_a_time(data: DomainSet, tmp_path: Path) -> None:
    def second(_: Progress) -> None:
        with pytest.raises(RunFolderError, match="another process"):
            train(settings(), data, tmp_path, resume=True)

    train(settings(iterations=1), data, tmp_path, progress=second)


def test_unknown_domains_and_too_large_batches_are_refused(data: DomainSet) -> None:
    watch = Watch()
    for setting in ("train_domains", "test_domains"):
        with pytest.raises(SettingError, match=f"{setting}='oil'"):
            train(settings(**{setting: ("oil",)}), data, progress=watch)
    assert not watch.losses  # before training
    with pytest.raises(ValueError, match="do not fill one batch of 1000"):
        train(settings(batch=1000), data)


def test_one_class_is_refused(data: DomainSet, tmp_path: Path) -> None:
    one = replace(data, labels=torch.zeros_like(data.labels), classes=["7"])
    with pytest.raises(SettingError, match=r"1 class \(7\), expected at least 2"):
        train(settings(), one, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("how", ["train", "train_together"])
def test_an_unavailable_device_is_refused(data: DomainSet, how: str, tmp_path: Path) -> None:
    wanted = settings(device="cuda:99", precision="bf16", speed="graph")
    with pytest.raises(ValueError, match=r"device='cuda:99'.*device='cpu'"):
        train(wanted, data, tmp_path / "run") if how == "train" else train_together([wanted], data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
