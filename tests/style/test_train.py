import dataclasses
import json
import shutil
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from runs import Watch, lines, weights
from style_runs import settings, small
from training import one_picture, train

from efdm.data import ImageSet
from efdm.models import build
from efdm.models.weights import load_network, read
from efdm.style import training
from efdm.style.settings import Settings
from efdm.style.training import CropPairs

pytestmark = pytest.mark.usefixtures("quickly", "narrow_vgg")


@pytest.mark.parametrize("make", [settings, small])
def test_the_loss_decreases(style_data: Path, tmp_path: Path, make: Callable[..., Settings]) -> None:
    content, style = (str(one_picture(tmp_path / str(n), seed=n, side=16)) for n in (1, 3))
    wanted = make(style_data, content=content, style=style, short_side=16, sliced_weight=0.0, lr=1e-4, seed=1)
    wanted = dataclasses.replace(wanted, iterations=24, reconstruct=4 * wanted.reconstruct)
    watch = Watch()
    train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=watch)
    for phase, count in {"reconstruct": wanted.reconstruct, "style": 24}.items():
        losses = [loss for (p, _), loss in watch.losses.items() if p == phase]
        assert len(losses) == count
        assert not losses or losses[-1] < 0.95 * losses[0], (phase, losses)


def test_slow_iterations_are_counted_between_log_entries(
    style_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SECONDS", 0.0)
    seen = []
    train(
        small(style_data, iterations=2, reconstruct=3, log_every=50, preview_every=0), tmp_path / "run", progress=seen.append
    )
    steps = [(p.label, p.done, p.total) for p in seen if p.label in ("reconstruct", "style")]
    assert [step for step in steps if step[0] == "reconstruct"] == [("reconstruct", i, 3) for i in range(4)]
    assert [step for step in steps if step[0] == "style"] == [("style", i, 2) for i in range(3)]


def test_files_of_a_finished_run(style_data: Path, tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    wanted = small(style_data, iterations=5, reconstruct=2, log_every=2, preview_every=3)
    network = train(wanted, run)
    assert Settings(**json.loads((run / "settings.json").read_text())) == wanted
    environment = json.loads((run / "environment.json").read_text())
    assert (environment["contents"], environment["styles"], environment["skipped"]) == (4, 3, [])
    assert environment["versions"]["torch"]
    log = lines(run / "log.jsonl")
    assert [(r["phase"], r["iteration"]) for r in log] == [("reconstruct", 2), ("style", 2), ("style", 4), ("style", 5)]
    assert {"loss", "pixels", "likeness", "distilled", "gradient", "lr"} <= set(log[0])
    assert {"loss", "content", "style", "identity", "sliced", "gradient", "lr"} <= set(log[-1])
    assert sorted(p.name for p in (run / "previews").iterdir()) == ["final.jpg", "style-0000003.jpg"]
    assert (run / "done").exists()
    assert not (run / "checkpoint.pt").exists()
    again = load_network(build("small"), run / "network.safetensors")
    torch.testing.assert_close(weights(again), weights(network), rtol=1e-3, atol=1e-4)


def test_the_averaged_weights_are_saved(style_data: Path, tmp_path: Path) -> None:
    wanted = small(style_data, reconstruct=0, ema_decay=0.5)
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, progress=Watch(3))  # the last iteration
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"]
    network = train(wanted, tmp_path / "run", resume=True)
    names = [n for n, _ in network.named_parameters() if not n.startswith("stages.0.")]
    average = dict(zip(names, state["averaged"], strict=True))
    saved = read(tmp_path / "run" / "network.safetensors")
    assert all(torch.equal(saved[n], average[n].half()) for n in names)
    assert any(not torch.equal(saved[n], state["modules"]["network"][n].half()) for n in names)


def test_a_run_can_start_from_a_network(style_data: Path, tmp_path: Path) -> None:
    first = train(small(style_data, reconstruct=0), tmp_path / "first")
    start = str(tmp_path / "first" / "network.safetensors")
    still = {"reconstruct": 0, "iterations": 1, "weight_decay": 0.0, "seed": 5}
    second = train(small(style_data, lr=0.0, start=start, **still), tmp_path / "second")
    torch.testing.assert_close(weights(second), weights(first).half().double(), rtol=0, atol=0)
    other = train(small(style_data, lr=0.0, **still), tmp_path / "other")
    assert not torch.equal(weights(other), weights(second))


def test_a_run_can_continue_the_iterations_of_another(style_data: Path, tmp_path: Path) -> None:
    """It has the learning rates and the crops of the longer run."""
    still = {"reconstruct": 0, "lr": 1e-9, "weight_decay": 0.0, "iterations": 4}
    train(small(style_data, **still), tmp_path / "long", log_every=1)
    train(small(style_data, **{**still, "iterations": 2}), tmp_path / "first", log_every=1)
    start = str(tmp_path / "first" / "network.safetensors")
    train(small(style_data, **still, start=start, start_iteration=2), tmp_path / "second", log_every=1)
    wanted, found = lines(tmp_path / "long" / "log.jsonl")[2:], lines(tmp_path / "second" / "log.jsonl")
    assert [r["iteration"] for r in found] == [3, 4]
    assert [r["lr"] for r in found] == [r["lr"] for r in wanted]
    assert [r["loss"] for r in found] == pytest.approx([r["loss"] for r in wanted], rel=1e-2)  # stored in half precision


def test_a_run_resumes_without_its_initial_network(style_data: Path, tmp_path: Path) -> None:
    train(small(style_data, reconstruct=0, iterations=1), tmp_path / "first")
    start = tmp_path / "first" / "network.safetensors"
    wanted = small(style_data, reconstruct=0, start=str(start))
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, progress=Watch(2))
    start.unlink()
    train(wanted, tmp_path / "run", resume=True)


def test_reasons_for_skipping_contain_no_folders(style_data: Path, tmp_path: Path) -> None:
    contents, styles = tmp_path / "photos", tmp_path / "paintings.zip"
    shutil.copytree(style_data / "content", contents)
    (contents / "a").mkdir()
    (contents / "a" / "1.png").touch()
    with zipfile.ZipFile(styles, "w") as archive:
        for path in (style_data / "style").iterdir():
            archive.write(path, path.name)
        archive.writestr("b/2.png", b"")
    train(settings(style_data, content=str(contents), style=str(styles), iterations=1), tmp_path / "run", preview_every=0)
    skipped = json.loads((tmp_path / "run" / "environment.json").read_text())["skipped"]
    expected = ["content: photos/a/1.png is empty", "style: paintings.zip/b/2.png is empty"]
    assert [reason.partition(";")[0] for reason in skipped] == expected


def test_batches_are_the_same_wherever_a_run_starts(style_data: Path) -> None:
    wanted = small(style_data)
    sets = [ImageSet.load(style_data / n, short_side=20) for n in ("content", "style")]
    crops, other = CropPairs(*sets, wanted), CropPairs(*sets, dataclasses.replace(wanted, seed=1))
    forward = list(islice(crops.batches(0, 0), 7))
    for i in reversed(range(7)):
        assert all(torch.equal(a, b) for a, b in zip(next(crops.batches(0, i)), forward[i], strict=True))
    assert [tensor.shape for tensor in forward[0]] == [(2, 3, 16, 16), (2, 3, 16, 16), (128, 8), (128, 8)]
    contents = torch.stack([f[0] for f in forward])
    assert len(contents.unique(dim=0)) == 7
    assert not torch.equal(next(crops.batches(1, 0))[0], forward[0][0])  # another phase
    assert not torch.equal(next(other.batches(0, 0))[0], forward[0][0])


def test_processes_share_the_batch_of_one(style_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = small(style_data, batch=4)
    sets = [ImageSet.load(style_data / n, short_side=20) for n in ("content", "style")]
    whole = next(CropPairs(*sets, wanted).batches(0, 5))
    shares = []
    for rank in range(2):
        monkeypatch.setattr(training, "processes", lambda rank=rank: (rank, 2))
        shares.append(next(CropPairs(*sets, wanted).batches(0, 5)))
    for place_of in (0, 1):
        assert torch.equal(torch.cat([s[place_of] for s in shares]), whole[place_of])
    assert all(torch.equal(s[3], whole[3]) for s in shares)
    monkeypatch.setattr("efdm.training.distributed.processes", lambda: (0, 2))
    with pytest.raises(ValueError, match="batch must be a multiple of the 2 processes, got 3"):
        CropPairs(*sets, small(style_data, batch=3))
