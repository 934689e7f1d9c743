import signal
from pathlib import Path

import pytest
import torch
from commands import files
from safetensors.torch import save_file

from efdm.data import read_picture, write_picture
from efdm.models import VGG, build
from efdm.models.weights import read, save_encoder, save_network
from efdm.training.device import fast_precision


def test_one_picture_in_one_style(place: Path, run) -> None:
    result = run("photo.png", "--style", "style.png", "-o", "new/out.jpg")
    assert read_picture("new/out.jpg").rgb.shape == (3, 20, 24)
    assert result.output == "new/out.jpg\n"


def test_every_content_in_every_style(place: Path, run) -> None:
    result = run("contents", "--style", "styles", "--style", "glass", "-o", "out")
    assert files(place / "out") == sorted(f"{c}__{s}.png" for c in ("a", "sub/b") for s in ("glass", "x", "y"))
    assert "stylizing: 6/6" in result.output
    assert "6 pictures in out" in result.output


def test_weights_mix_all_styles_into_one(place: Path, run) -> None:
    both = ("--style", "styles/x.png", "--style", "styles/y.png")
    run("photo.png", *both, "--weight", 1, "--weight", 0, "-o", "mixed.png")
    run("photo.png", "--style", "styles/x.png", "-o", "single.png")
    run("photo.png", "--style", "styles", "--mix", "equal", "-o", "out")
    assert files(place / "out") == ["photo__x+y.png"]
    mixed, single, equal = (read_picture(p).rgb for p in ("mixed.png", "single.png", "out/photo__x+y.png"))
    assert (mixed - single).abs().max() <= 1 / 255 + 1e-6
    assert not torch.equal(mixed, equal)


def test_regions(place: Path, run) -> None:
    two = ("--content-mask", "left.png", "--content-mask", "right.png", "--style", "styles/x.png")
    run("photo.png", *two, "-o", "same.png")
    run("photo.png", *two, "--style", "styles/y.png", "-o", "two.png")
    parts = ("--style-mask", "left.png", "--style-mask", "right.png")
    run("photo.png", *two, *parts, "-o", "parts.png")
    same, other, parted = (read_picture(f"{name}.png").rgb for name in ("same", "two", "parts"))
    assert not torch.equal(same[..., 12:], other[..., 12:])
    assert not torch.equal(same, parted)


def test_options_reach_the_stylizer(place: Path, run) -> None:
    write_picture("flat.png", torch.full((3, 20, 24), 0.5))  # all values are tied
    made = {}
    for name, options in {
        "plain": ("photo.png",),
        "strength": ("photo.png", "--strength", 0.3),
        "method": ("photo.png", "--method", "adamean"),
        "colour": ("photo.png", "--preserve-color", "content"),
        "photoreal": ("photo.png", "--photoreal", "grid"),
        "size": ("photo.png", "--size", 12),
        "style_size": ("photo.png", "--style-size", 40),
        "stroke": ("photo.png", "--stroke", 2),
        "tied": ("flat.png", "--tolerance", 0),
        "three": ("flat.png", "--ties", "random", "--seed", 3),
        "again": ("flat.png", "--ties", "random", "--seed", 3),
        "four": ("flat.png", "--ties", "random", "--seed", 4),
    }.items():
        run(*options, "--style", "style.png", "-o", f"{name}.png")
        made[name] = read_picture(f"{name}.png").rgb
    assert torch.equal(made["three"], made.pop("again"))
    pictures = list(made.values())
    assert not any(torch.equal(a, b) for i, a in enumerate(pictures) for b in pictures[:i])
    assert all(picture.shape == (3, 20, 24) for picture in pictures)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_auto_precision_depends_on_the_processor(place: Path, run, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: precision == "bf16", raising=False)
    run("photo.png", "--style", "style.png", "-o", "auto.png")
    run("photo.png", "--style", "style.png", "--precision", precision, "-o", "given.png")
    assert Path("auto.png").read_bytes() == Path("given.png").read_bytes()
    assert fast_precision(torch.device("cuda")) == "fp32"
    assert "'auto'" in run("photo.png", "--style", "style.png", "--precision", "f", "-o", "no.png", code=2).stderr


def test_a_video(place: Path, run) -> None:
    import av

    from efdm.data.video import VideoReader, VideoWriter

    with VideoWriter("film.mp4", fps=8) as writer:
        for shift in range(3):
            writer.write(torch.rand(3, 32, 48).roll(shift, -1))
    result = run("film.mp4", "--style", "style.png", "-o", "new.mp4", "--temporal", "none", "--audio", "drop", "--size", 24)
    assert "3 frames in new.mp4" in result.output
    with VideoReader("new.mp4") as reader:
        assert reader.size == (32, 48)
    with av.open("new.mp4") as file:
        assert not file.streams.audio
    assert "--ties" in run("film.mp4", "--style", "style.png", "-o", "other.mp4", "--ties", "random", code=2).output
    assert not Path("other.mp4").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_video_keeps_its_frames(
    place: Path, run, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    from efdm.data.video import VideoWriter

    with VideoWriter("film.mp4", fps=8) as writer:
        for _ in range(3):
            writer.write(torch.rand(3, 32, 32))
    before = set(files(place))

    def interrupt(_: object, frames: object, *args: object, **kwargs: object) -> object:
        yield next(frames)  # type: ignore[call-overload]
        signal.raise_signal(signum)

    monkeypatch.setattr("efdm.style.jobs.stylize_frames", interrupt)
    assert "saved 1 frame to out-incomplete.mp4" in run("film.mp4", "--style", "style.png", "-o", "out.mp4", code=130).output
    assert set(files(place)) - before == {"out-incomplete.mp4"}


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vgg16 decoder, the same without metadata, and an encoder."""
    folder = tmp_path_factory.mktemp("deep")
    save_network(build("vgg16"), folder / "network.safetensors", {})
    save_file(read(folder / "network.safetensors"), folder / "bare.safetensors")
    save_encoder(VGG("vgg16"), folder / "encoder.safetensors")
    return folder


def test_the_model_is_taken_from_the_weights(place: Path, run, deep: Path) -> None:
    own = ("photo.png", "--style", "style.png", "--vgg", deep / "encoder.safetensors", "--weights")
    run(*own, deep / "network.safetensors", "-o", "out.png")
    run(*own, deep / "bare.safetensors", "--model", "vgg16", "-o", "named.png")
    assert torch.equal(read_picture("out.png").rgb, read_picture("named.png").rgb)


@pytest.mark.parametrize(
    ("weights", "model", "words"),
    [
        ("network.safetensors", ("--model", "small"), ("vgg16", "small", "(--model)")),
        ("bare.safetensors", (), ("small, vgg16, vgg19",)),
        ("bare.safetensors", ("--model", "small"), ("bare.safetensors", "small")),
        ("absent.safetensors", (), ("absent.safetensors",)),
        ("network.safetensors", ("--model", "vgg61"), ("vgg61", "'small', 'vgg16', 'vgg19'", "(--model)")),
    ],
    ids=["another", "unnamed", "unnamed and wrong", "absent", "unknown"],
)
def test_weights_that_do_not_fit_the_model(
    place: Path, run, deep: Path, weights: str, model: tuple[str, ...], words: tuple[str, ...]
) -> None:
    result = run("photo.png", "--style", "style.png", "--weights", deep / weights, *model, "-o", "out.png", code=2)
    assert all(word in result.output for word in words)
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("photo.png", "--style", "nothing.png"), "nothing.png"),
        (("photo.png", "--style", "style.png", "--strength", "1.5"), "--strength"),
        (("photo.png", "--style", "style.png", "--style-size", "huge"), "(--style-size)"),
        (("photo.png", "--style", "style.png", "--mix", "x"), "(--mix)"),
        (("photo.png", "--style", "styles"), "(--out, --mix)"),
    ],
)
def test_invalid_arguments_are_reported_before_a_model_is_loaded(
    place: Path, run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("efdm.style.stylizer.Stylizer.from_pretrained", lambda *a, **k: pytest.fail("loaded"))
    result = run(*arguments, "-o", "out.png", code=2)
    assert message in result.output
    assert not Path("out.png").exists()


def test_unreadable_pictures_are_skipped(place: Path, run) -> None:
    data = Path("photo.png").read_bytes()
    Path("contents/cut.png").write_bytes(data[: len(data) // 2])
    Path("contents/empty.png").write_bytes(b"")
    Path("contents/text.png").write_text("hello")
    Path("styles/bad.png").write_bytes(b"")
    Path("contents/film.mp4").touch()
    result = run("contents", "--style", "styles", "-o", "out", code=1)
    assert "contents: 1 video skipped" in result.output
    assert files(place / "out") == ["a__x.png", "a__y.png", "sub/b__x.png", "sub/b__y.png"]
    for name in ("contents/cut.png", "contents/empty.png", "contents/text.png", "styles/bad.png"):
        assert result.output.count(name) == 1, "once per file, not once per style"
    assert "11 of 15 pictures failed" in result.output


def test_an_old_result_is_kept_if_all_pictures_fail(place: Path, run) -> None:
    Path("photo.png").write_bytes(b"")
    Path("out.png").write_bytes(b"old")
    run("photo.png", "--style", "style.png", "-o", "out.png", code=2)
    assert Path("out.png").read_bytes() == b"old"
    assert not list(Path().glob(".*.tmp"))
