"""Options that `efdm stylize` and `efdm match` share: several contents, formats, existing results and pipes."""

import io
import os
import random
import subprocess
import sys
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from commands import files, invoke
from PIL import Image
from web_files import COUNT, clip

from efdm.data.video import VideoReader, VideoWriter


@pytest.fixture(params=["stylize", "match"])
def command(request: pytest.FixtureRequest, place: Path, weights: Path):
    """Run a command with the style or reference style.png."""
    words = {"stylize": ["--weights", weights, "--style", "style.png"], "match": ["--reference", "style.png"]}[request.param]
    return partial(invoke, request.param, *words, "--device", "cpu")


def test_several_contents_in_another_format(place: Path, command) -> None:
    command("photo.png", "wide.png", "contents", "-o", "out", "--format", "jpg", "--quality", 40)
    assert len(files(place / "out")) == 4
    assert all(Image.open(path).format == "JPEG" for path in Path("out").rglob("*.jpg"))
    small = sum(path.stat().st_size for path in Path("out").rglob("*.jpg"))
    command("photo.png", "wide.png", "contents", "-o", "best", "--format", "jpg", "--quality", 100)
    assert small < sum(path.stat().st_size for path in Path("best").rglob("*.jpg"))


def test_typer_leaves_unreadable_files_to_the_library(place: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    """typer would refuse the command; the library reports the file and processes the others."""
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.R_OK or Path(path).name != "photo.png")
    command("photo.png", "contents", "-o", "out")
    assert len(files(place / "out")) == 3


def test_existing_results_are_skipped(place: Path, command) -> None:
    command("contents/a.png", "-o", "out")
    (old,) = files(place / "out")
    Path("out", old).write_bytes(b"old")
    assert "1 result skipped" in command("contents", "-o", "out", "--skip-existing").stderr
    assert Path("out", old).read_bytes() == b"old"
    assert len(files(place / "out")) == 2
    assert command("contents", "-o", "out", "--skip-existing").output == "2 results skipped, because the files exist\n"
    command("contents", "-o", "out")
    assert Path("out", old).read_bytes() != b"old"


def test_stdin_and_stdout(place: Path, command) -> None:
    result = command("-", "-o", "-", "--format", "webp", input=Path("photo.png").read_bytes())
    image = Image.open(io.BytesIO(result.stdout_bytes))
    assert (image.format, image.size) == ("WEBP", (24, 20))
    assert "to stdout" in command("clip.mp4", "-o", "-", code=2).output
    assert command("contents", "-o", "-", code=2).stderr.startswith("stdout is a single file")
    result = command("-", "-o", "-", input=b"no picture", code=2)
    assert result.stdout_bytes == b""
    assert result.stderr.splitlines()[-1].startswith("stdin is not a picture"), "without the folder of its copy"


def test_a_video_from_stdin(place: Path, command) -> None:
    pytest.importorskip("av")
    command("-", "-o", "out.mp4", input=clip(place / "clip.mp4").read_bytes())
    with VideoReader("out.mp4") as reader:
        assert reader.frames == COUNT


def test_messages_go_to_stderr_and_brackets_are_not_markup(place: Path, command) -> None:
    Path("contents/x[.png").write_bytes(b"no picture")
    Path("contents/[/red].png").parent.mkdir()
    Path("contents/[/red].png").write_bytes(b"no picture")
    Path("contents/\udcff.png").write_bytes(b"no picture")
    result = command("contents", "-o", "out", code=1)
    assert result.stdout == "2 pictures in out\n"
    assert all(text in result.stderr for text in ("x[.png", "[/red].png", "3 of 5 pictures failed"))


def test_a_link_to_itself_is_named(place: Path, command) -> None:
    Path("contents/self.png").symlink_to("self.png")
    result = command("contents", "-o", "out", code=1)
    assert result.stdout == "2 pictures in out\n"
    assert "contents/self.png cannot be read" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_named(place: Path) -> None:
    words = ["stylize", "photo.png", "-o", "-", "--style", "style.png", "--device", "cpu"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run([sys.executable, "-m", "efdm", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("stdout cannot be written (No space left on device)")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_files_are_read_or_named(place: Path, command) -> None:
    draw = random.Random(0)
    Path("damaged").mkdir()
    for number, format in zip(range(60), cycle(("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM")), strict=False):
        whole = io.BytesIO()
        Image.open("photo.png").save(whole, format)
        data = bytearray(whole.getvalue())
        for _ in range(draw.randrange(1, 20)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        extension = {"JPEG": "jpg", "TIFF": "tif"}.get(format, format.lower())
        Path(f"damaged/{number:02}.{extension}").write_bytes(data[: draw.choice((len(data), draw.randrange(len(data))))])
    result = command("damaged", "-o", "out", code=1)
    made = {path.name[:2] for path in Path("out").iterdir()}
    named = {path.name[:2] for path in Path("damaged").iterdir() if path.name in result.stderr}
    assert made | named == {f"{number:02}" for number in range(60)}
    assert not made & named
    assert all(Image.open(path).load() for path in Path("out").iterdir())


def fail(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """Let every picture raise a RuntimeError."""

    def failing(*_: object, **__: object) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr("efdm.style.stylizer.Stylizer.stylize", failing)
    monkeypatch.setattr("efdm.style.match_files.match_picture", failing)


def test_out_of_memory_names_the_picture_and_a_remedy(place: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, "DefaultCPUAllocator: can't allocate memory")
    result = command("contents", "-o", "out", code=2)
    assert "not enough memory for contents/a.png" in result.stderr
    assert "--device" not in result.stderr, "it runs on the CPU already"


def test_out_of_memory_names_the_video(place: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av")

    def failing(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(VideoWriter, "write", failing)
    clip(place / "clip.mp4")
    assert "not enough memory for clip.mp4; make it smaller" in command("clip.mp4", "-o", "out.mp4", code=2).stderr


def test_errors_show_paths_as_they_were_given(place: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("contents/sub/b.png").write_bytes(b"no picture")
    for given in ("contents", "contents/sub/b.png"):
        assert "contents/sub/b.png is not a picture" in command(given, "-o", "out", code=None).stderr
    fail(monkeypatch, "no such operation")
    assert "contents/a.png: no such operation" in command("contents", "-o", "out", code=2).stderr


def test_a_mistake_names_its_option(place: Path, command) -> None:
    for option, value in (("--strength", 3), ("--ties", "none"), ("--method", "all"), ("--tolerance", -1)):
        assert option in command("photo.png", "-o", "out.png", option, value, code=2).output
    assert "nowhere.png" in command("nowhere.png", "-o", "out.png", code=2).output
    assert not Path("out.png").exists()


def test_the_help_lists_choices_and_ranges(command) -> None:
    result = command("--help")
    for text in ("[keep|drop]", "png, jpg", "0<=x<=1", "1<=x<=100", "[plain|ray]"):
        assert text in result.output
