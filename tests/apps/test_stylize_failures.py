"""`efdm stylize` when something is wrong: calls, files that are left out, places where nothing can go, memory."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
import torch
from stylize_commands import files

# --- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.png", "--style", "style.png"), "nothing.png does not exist"),
        (("photo.png", "--style", "nothing.png"), "or name a painted style"),
        (("photo.png", "--style", "style.png", "--strength", "1.5"), "outside 0"),
        (("photo.png", "--style", "style.png", "--method", "adian"), "did you mean 'adain'"),
        (("photo.png", "--style", "style.png", "--photoreal", "yes"), "--photoreal='yes' is not one of"),
        (("photo.png", "--style", "style.png", "--ties", "x"), "--ties='x' is not one of"),
        (("photo.png", "--style", "style.png", "--mix", "x"), "'none', 'equal'"),
        (("photo.png", "--style", "style.png", "--device", "tpuu"), "try --device cpu"),
        (("photo.png", "--style", "styles", "--weight", "1"), "2 styles and 1 weight;"),
        (("photo.png", "--style", "style.png", "--weight", "-1"), "from 0 up"),
        (("photo.png", "--style", "styles", "--style-mask", "left.png"), "one for each style, or none"),
        (("photo.png", "--style", "styles", "--content-mask", "left.png"), "give one style for all regions"),
        (
            ("photo.png", "--style", "style.png", "--content-mask", "left.png", "--mix", "equal"),
            "leave --weight and --mix out",
        ),
        (("photo.png", "--style", "style.png", "--size", "huge"), "write a number, full or auto"),
        (("photo.png", "--style", "style.png", "--mix", "both"), "--mix='both'"),
        (("contents", "--style", "style.png"), "for 2 pictures in 1 look, give a folder"),
        (("photo.png", "--style", "styles"), "for 1 picture in 2 looks, give a folder"),
    ],
)
def test_wrong_calls_are_one_sentence(place: Path, run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments, "-o", "out.png")
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert not Path("out.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("photo.png", "--style", "styles", "--weight", "0", "--weight", "0", "-o", "out.png"), "not all zero"),
        (("photo.png", "--style", "style.png", "--weight", "nan", "-o", "out.png"), "from 0 up"),
        (("film.mp4", "--style", "style.png", "-o", "styles"), "give a file name such as styles/out.mp4"),
        (("film.mp4", "--style", "style.png", "-o", "new"), "give a file name such as new/out.mp4"),
        (("film.mp4", "--style", "style.png", "-o", "out.png"), "use one of .mp4"),
        (("film.mp4", "--style", "styles", "-o", "out.mp4"), "a video takes one look"),
        (("film.mp4", "--style", "style.png", "--photoreal", "grid", "-o", "out.mp4"), "are for pictures"),
    ],
)
def test_it_is_told_before_a_model_is_loaded(
    place: Path, run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("efdm.style.stylizer.Stylizer.from_pretrained", lambda *a, **k: pytest.fail("loaded"))
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


# --- where it can go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "message"),
    [("photo.png", "would replace photo.png"), ("out.xyz", "cannot be written"), ("style.png/out", "choose another one")],
)
def test_where_nothing_can_go(place: Path, run, out: str, message: str) -> None:
    before = Path("photo.png").read_bytes()
    result = run("photo.png", "--style", "style.png", "-o", out)
    assert result.exit_code == 2
    assert message in result.output
    assert Path("photo.png").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        (("photo.png", "--style", "style.png"), "style.png"),
        (("photo.png", "--style", "style.png"), "./sub/../style.png"),
        (("photo.png", "--style", "style.png"), "link.png"),
        (("photo.png", "--style", "styles", "--mix", "equal"), "styles/y.png"),
        (("photo.png", "--style", "style.png", "--content-mask", "left.png"), "left.png"),
        (("photo.png", "--style", "style.png", "--style-mask", "left.png"), "left.png"),
        (("contents", "--style", "style.png"), "contents"),
        (("film.mp4", "--style", "style.png"), "film.mp4"),
        (("film.mp4", "--style", "moving.gif"), "moving.gif"),
    ],
    ids=["style", "other_name", "link", "one_of_a_folder", "content_mask", "style_mask", "in_a_folder", "video", "gif"],
)
def test_nothing_that_is_read_is_replaced(place: Path, run, arguments: tuple[str, ...], out: str) -> None:
    Path("sub").mkdir()
    Path("link.png").symlink_to("style.png")
    Path("film.mp4").write_bytes(b"a film")
    Path("moving.gif").write_bytes(b"a moving picture")
    Path("contents/a__style.png").write_bytes(Path("photo.png").read_bytes())  # of an earlier run
    before = {name: Path(name).read_bytes() for name in files(place)}
    result = run(*arguments, "-o", out)
    assert result.exit_code == 2, result.output
    assert "would replace" in result.output
    assert {name: Path(name).read_bytes() for name in files(place)} == before


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_may_not_be_written(place: Path, run) -> None:
    Path("closed").mkdir(mode=0o500)
    result = run("contents", "--style", "style.png", "-o", "closed")
    assert result.exit_code == 2
    assert "permission denied" in result.output


# --- what is left out ------------------------------------------------------------------------------------------------


def test_videos_in_a_folder_or_zip_are_left_out_and_counted(place: Path, run) -> None:
    for name in ("film.mp4", "sub/Film.MOV", ".hidden.mp4"):
        (place / "contents" / name).write_bytes(b"a film")
    with zipfile.ZipFile("all.zip", "w") as archive:
        for name in ("a.png", "film.mp4"):
            archive.write(f"contents/{name}", name)
    for content, count in {"contents": "2 videos", "all.zip": "1 video"}.items():
        result = run(content, "--style", "style.png", "-o", f"of-{content}")
        assert result.exit_code == 0
        assert f"{count} in {content} left out; give a video by itself" in result.output
    (place / "films").mkdir()
    (place / "films/film.webm").write_bytes(b"a film")
    result = run("films", "--style", "style.png", "-o", "out")
    assert result.exit_code == 2
    assert "1 video in films left out" in result.output


def test_videos_among_styles_are_left_out_and_counted(place: Path, run) -> None:
    (place / "styles/film.mp4").write_bytes(b"a film")
    with zipfile.ZipFile("all.zip", "w") as archive:
        for name in ("x.png", "film.mp4"):
            archive.write(f"styles/{name}", name)
    result = run("photo.png", "--style", "styles", "--style", "style.png", "--style", "all.zip", "-o", "out")
    assert result.exit_code == 0
    assert files(place / "out") == [f"photo__{style}.png" for style in ("style", "x-2", "x", "y")]
    for source in ("styles", "all.zip"):
        assert result.output.count(f"1 video in {source} left out; a style is a picture\n") == 1
    (place / "films").mkdir()
    (place / "films/film.webm").write_bytes(b"a film")
    result = run("photo.png", "--style", "films", "-o", "none")
    assert result.exit_code == 2
    assert "1 video in films left out" in result.output
    assert "or name a painted style" in run("photo.png", "--style", "absent.zip", "-o", "none").output


def test_bad_files_are_left_out_and_the_rest_goes_on(place: Path, run) -> None:
    whole = io.BytesIO(Path("photo.png").read_bytes()).getvalue()
    Path("contents/cut.png").write_bytes(whole[: len(whole) // 2])
    Path("contents/empty.png").write_bytes(b"")
    Path("contents/text.png").write_text("hello")
    result = run("contents", "--style", "styles", "-o", "out")
    assert result.exit_code == 1
    assert files(place / "out") == ["a__x.png", "a__y.png", "sub/b__x.png", "sub/b__y.png"]
    for name, why in {"cut.png": "cut short or damaged", "empty.png": "is empty", "text.png": "not a picture"}.items():
        assert result.output.count(f"{name} is") == 1, "once for each file, not for each style"
        assert why in result.output
    assert "6 of 10 pictures failed" in result.output


def test_a_bad_style_is_left_out(place: Path, run) -> None:
    Path("styles/bad.png").write_bytes(b"")
    result = run("photo.png", "--style", "styles", "-o", "out")
    assert result.exit_code == 1
    assert files(place / "out") == ["photo__x.png", "photo__y.png"]


# --- what fails while it works ---------------------------------------------------------------------------------------


def test_when_everything_fails_an_old_result_stays(place: Path, run) -> None:
    Path("photo.png").write_bytes(b"")
    Path("out.png").write_bytes(b"old")
    result = run("photo.png", "--style", "style.png", "-o", "out.png")
    assert result.exit_code == 2
    assert Path("out.png").read_bytes() == b"old"
    assert not list(Path().glob(".*.tmp"))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "work at a smaller --size"),
        (torch.OutOfMemoryError("tried to allocate much"), "work at a smaller --size"),
        (RuntimeError("CUDA error: out of memory"), "work at a smaller --size"),
        (MemoryError(), "work at a smaller --size"),
        (RuntimeError("an illegal memory access was encountered"), "an illegal memory access"),
    ],
    ids=["cpu", "torch", "driver", "python", "not_short"],
)
def test_short_memory_is_a_sentence(
    place: Path, run, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("efdm.style.stylizer.Stylizer.stylize", full)
    result = run("photo.png", "--style", "style.png", "-o", "out.png")
    assert result.exit_code == 2
    assert sentence in result.output
    assert ("--size" in result.output) == ("--size" in sentence)
