"""Jobs of `efdm stylize` and `efdm match`."""

import sys
from pathlib import Path

import pytest
import torch
from commands import files, invoke

from efdm.data import write_picture


def visible(folder: Path) -> list[str]:
    return [name for name in files(folder) if not name.startswith(".done/")]


def test_parts_of_a_job_together_equal_the_command(place: Path, run) -> None:
    run("contents", "--style", "styles", "-o", "direct")
    for part in ("1/2", "2/2"):
        assert "2 pictures in out" in run("contents", "--style", "styles", "-o", "out", "--shard", part).output
    assert visible(place / "out") == visible(place / "direct")
    assert all((place / "out" / n).read_bytes() == (place / "direct" / n).read_bytes() for n in visible(place / "direct"))
    assert "4 pictures in out" in run("contents", "--style", "styles", "-o", "out", "--shard", "1/1").output


def test_shards_in_and_out(place: Path, run) -> None:
    run("contents", "--style", "glass", "-o", "shards", "--output", "shards")
    assert visible(place / "shards") == ["000000.tar", "000001.tar"]
    run("shards", "--style", "chalk", "-o", "again")
    assert visible(place / "again") == ["000000.tar", "000001.tar"]


def test_failures_and_mistakes(place: Path, run) -> None:
    Path("contents/bad.png").write_bytes(b"nothing")
    result = run("contents", "--style", "style.png", "-o", "out", "--shard", "1/1", code=1)
    assert "contents/bad.png is not a picture" in result.output
    assert "1 of 3 pictures failed" in result.output
    for options, words in (
        (("--strength", 0.5), "--out"),
        (("--content-mask", "left.png"), "--content-mask"),
        (("--engine", "spark"), "--engine"),
        (("--output", "zip"), "--output"),
    ):
        assert words in run("contents", "--style", "style.png", "-o", "out", "--shard", "1/1", *options, code=2).output
    for shard in ("3", "3/2"):
        assert "--shard" in run("contents", "--style", "style.png", "-o", "unused", "--shard", shard, code=2).output
    assert not Path("unused").exists(), "a wrong shard would keep the folder from other jobs"


def test_a_job_needs_a_folder(place: Path, run) -> None:
    assert "folder" in run("contents", "--style", "glass", "-o", "out.png", "--shard", "1/1", code=2).output
    assert not Path("out.png").exists()


def test_skipped_files_are_counted(place: Path, run) -> None:
    Path("contents/notes.txt").write_text("no picture")
    result = run("contents", "--style", "style.png", "-o", "out", "--shard", "1/1")
    assert "contents: 1 other file skipped" in result.stderr


def test_a_job_takes_no_video(place: Path, run) -> None:
    assert "got the video clip.mp4" in run("clip.mp4", "--style", "glass", "-o", "out", "--shard", "1/1", code=2).output
    assert not Path("out").exists()


def test_match(place: Path) -> None:
    write_picture("reference.png", torch.rand(3, 8, 8))
    both = []
    for out, options in (("direct", ()), ("job", ("--shard", "1/1"))):
        invoke("match", "contents", "--reference", "reference.png", "-o", out, "--device", "cpu", *options)
        both.append({name: (place / out / name).read_bytes() for name in visible(place / out)})
    assert both[0] == both[1]
    assert len(both[0]) == 2


def test_ray_is_optional(place: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "efdm[scale]" in run("contents", "--style", "style.png", "-o", "out", "--engine", "ray", code=2).output
