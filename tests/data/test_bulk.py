"""Jobs of the plain engine: complete, resumable, divided among machines, with failures listed."""

import errno
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_processes import Negatives, write_pictures

from efdm.data import Picture, read_picture
from efdm.data import bulk as module
from efdm.data.bulk import find_units, open_job, run_job
from efdm.data.shards import Sample, read_shard, write_shard
from efdm.errors import MissingExtraError, RunFolderError, SettingError


def results(out: Path) -> dict[str, bytes]:
    """Return the bytes of all results by name. Fails if a name appears twice."""
    found: dict[str, bytes] = {}
    samples = [(s.key, s.members["png"]) for tar in sorted(out.glob("*.tar")) for s in read_shard(tar)]
    files = [(p.relative_to(out).as_posix().removesuffix(".png"), p.read_bytes()) for p in out.rglob("*.png")]
    for key, data in [*samples, *files]:
        assert key not in found, f"{key} twice"
        found[key] = data
    return found


@pytest.fixture
def negatives(tmp_path: Path) -> Negatives:
    return Negatives(tmp_path / "starts")


def test_files_and_shards_hold_the_same_pictures(tmp_path: Path, negatives: Negatives) -> None:
    write_pictures(tmp_path / "in/sub", 7)
    assert run_job(open_job(tmp_path / "in", tmp_path / "files", {}), negatives).done == 7
    assert run_job(open_job(tmp_path / "in", tmp_path / "shards", {}, "shards"), negatives).done == 7
    made = results(tmp_path / "files")
    assert made == results(tmp_path / "shards")
    assert sorted(made) == [f"sub/p{i}-negative" for i in range(7)]
    before = read_picture(tmp_path / "in/sub/p3.png").rgb
    assert torch.allclose(read_picture(tmp_path / "files/sub/p3-negative.png").rgb, 1 - before, atol=1e-6)


def test_shards_keep_the_other_members(tmp_path: Path, negatives: Negatives) -> None:
    write_pictures(tmp_path / "p", 2)
    (tmp_path / "in").mkdir()
    for name, picture in (("x", "p0"), ("y", "p1")):
        with write_shard(tmp_path / f"in/{name}.tar") as add:
            add(Sample("0001", {"png": (tmp_path / f"p/{picture}.png").read_bytes(), "json": b"[1]", "cls": b"3"}))
    assert run_job(open_job(tmp_path / "in", tmp_path / "out", {}), negatives).done == 2
    (sample,) = read_shard(tmp_path / "out/x.tar")
    assert sample.key == "0001-negative"
    assert {e: sample.members[e] for e in ("json", "cls")} == {"json": b"[1]", "cls": b"3"}
    assert run_job(open_job(tmp_path / "in", tmp_path / "files", {}, "files"), negatives).done == 2
    assert sorted(results(tmp_path / "files")) == ["x/0001-negative", "y/0001-negative"]


def test_machines_share_a_job(tmp_path: Path, negatives: Negatives) -> None:
    write_pictures(tmp_path / "in", 10)
    parts = [run_job(open_job(tmp_path / "in", tmp_path / "out", {}), negatives, shard=(i, 3)).done for i in (1, 2, 3)]
    assert sum(parts) == len(results(tmp_path / "out")) == 10
    assert min(parts) >= 3


@pytest.mark.parametrize("output", ["files", "shards"])
def test_a_stopped_job_continues(tmp_path: Path, output: Any) -> None:
    write_pictures(tmp_path / "in", 6)
    seen: list[Picture] = []

    def count(picture: Picture) -> dict[str, Picture]:
        seen.append(picture)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return {"": picture}

    def run() -> int:
        return run_job(open_job(tmp_path / "in", tmp_path / "out", {}, output), lambda device: count).done

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(results(tmp_path / "out")) == 2
    for _ in range(2):  # the second run only reads the marks
        assert (run(), len(seen), len(results(tmp_path / "out"))) == (6, 3 + 4, 6)


def test_a_corrupt_file_does_not_stop_the_others(tmp_path: Path, negatives: Negatives) -> None:
    write_pictures(tmp_path / "in", 4)
    (tmp_path / "in/p1.png").write_bytes(b"nothing")
    for _ in range(2):  # the second run only reads the marks
        done = run_job(open_job(tmp_path / "in", tmp_path / "out", {}), negatives)
        damaged = str(tmp_path / "in/p1.png")
        assert (done.done, list(done.failed)) == (3, [damaged])
        assert damaged in done.failed[damaged]


def test_the_rest_of_a_damaged_shard_is_skipped(tmp_path: Path, negatives: Negatives) -> None:
    write_pictures(tmp_path / "p", 2)
    (tmp_path / "in").mkdir()
    for name in ("good", "torn"):
        with write_shard(tmp_path / f"in/{name}.tar") as add:
            add(Sample("a", {"png": (tmp_path / "p/p0.png").read_bytes()}))
            add(Sample("b", {"png": b"nothing"}))
            add(Sample("c", {"png": (tmp_path / "p/p1.png").read_bytes() * 9}))
    torn = tmp_path / "in/torn.tar"
    torn.write_bytes(torn.read_bytes()[:3500])
    done = run_job(open_job(tmp_path / "in", tmp_path / "out", {}), negatives)
    assert done.done == 3
    assert sorted(done.failed) == [f"{tmp_path}/in/{name}" for name in ("good.tar: b", "torn.tar", "torn.tar: b")]


def test_a_shard_that_cannot_be_written_is_repeated(
    tmp_path: Path, negatives: Negatives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the shard is not a failure of one picture: the members after it would be torn."""
    write_pictures(tmp_path / "in", 3)
    write, names = tarfile.TarFile.addfile, list[str]()

    def addfile(archive: tarfile.TarFile, info: tarfile.TarInfo, data: Any) -> None:
        names.append(info.name)
        if len(names) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(archive, info, data)

    monkeypatch.setattr(tarfile.TarFile, "addfile", addfile)
    job = open_job(tmp_path / "in", tmp_path / "out", {}, "shards")
    with pytest.raises(OSError, match="No space left on device"):
        run_job(job, negatives)
    assert [path.name for path in job.out.glob("*.tar")] == ["000000.tar"]
    assert (run_job(job, negatives).done, len(results(job.out))) == (3, 3)


def test_units_do_not_depend_on_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "in", 9)
    assert len(find_units(tmp_path / "in")[0]) == 9
    monkeypatch.setattr(module, "UNITS", 2)
    assert [len(unit.sources) for unit in find_units(tmp_path / "in")[0]] == [5, 4]
    monkeypatch.setattr(module, "MAX_UNIT", 4)
    assert [len(unit.sources) for unit in find_units(tmp_path / "in")[0]] == [4, 4, 1]


def test_keys_of_a_shard_have_no_dots_and_stay_unique(
    tmp_path: Path, negatives: Negatives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNITS", 1)
    write_pictures(tmp_path, 1)
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        for name in ("a.b.png", "a_b.png"):
            archive.write(tmp_path / "p0.png", name)
    assert run_job(open_job(tmp_path / "in.zip", tmp_path / "out", {}, "shards"), negatives).done == 2
    assert sorted(results(tmp_path / "out")) == ["a_b-2-negative", "a_b-negative"]


def test_mistakes(tmp_path: Path, negatives: Negatives, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "in", 2)
    job = open_job(tmp_path / "in", tmp_path / "out", {"strength": 1.0})
    assert json.loads((tmp_path / "out/.done/job.json").read_text())["settings"] == {"strength": 1.0}
    with pytest.raises(RunFolderError, match="settings") as caught:
        open_job(tmp_path / "in", tmp_path / "out", {"strength": 0.5})
    assert caught.value.problem == "other settings"
    write_pictures(tmp_path / "in", 3)
    with pytest.raises(RunFolderError, match="contents") as caught:
        open_job(tmp_path / "in", tmp_path / "out", {"strength": 1.0})
    assert caught.value.problem == "other data"
    with pytest.raises(SettingError, match="choose another folder"):
        open_job(tmp_path / "in", tmp_path / "in", {})
    with pytest.raises(SettingError, match="'files', 'shards'"):
        open_job(tmp_path / "in", tmp_path / "new", {}, "zips")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="1 <= i <= n"):
        run_job(job, negatives, shard=(3, 2))
    with pytest.raises(SettingError, match="engine='spark'"):
        run_job(job, negatives, engine="spark")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray is not installed.*efdm\[scale\]"):
        run_job(job, negatives, engine="ray")
