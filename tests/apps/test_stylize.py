from __future__ import annotations

import io
import os
import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from efdm.apps import stylize as stylizing
from efdm.apps.wishes import SOUND, make_wishes
from efdm.data import Source, read_picture, write_picture
from efdm.models import VGG, build
from efdm.models.weights import read, save_encoder, save_network

app = typer.Typer()
app.command()(stylizing.stylize)
runner = CliRunner()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "network.safetensors"
    save_network(build("small"), path, {})
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with two contents, three styles and a mask."""
    monkeypatch.chdir(tmp_path)
    for name in ("contents/a", "contents/sub/b", "styles/x", "styles/y", "photo", "style", "wide"):
        write_picture(tmp_path / f"{name}.png", torch.rand(3, 20, 40 if name == "wide" else 24))
    mask = torch.zeros(3, 20, 24)
    mask[:, :, :12] = 1
    write_picture(tmp_path / "left.png", mask)
    write_picture(tmp_path / "right.png", 1 - mask)
    return tmp_path


@pytest.fixture
def run(weights: Path):
    def call(*arguments: object):
        given = [str(a) for a in arguments]
        return runner.invoke(app, ["--weights", str(weights), "--device", "cpu", *given], env={"COLUMNS": "300"})

    return call


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


# --- what becomes of what --------------------------------------------------------------------------------------------


def test_one_picture_in_one_style(place: Path, run) -> None:
    result = run("photo.png", "--style", "style.png", "-o", "new/out.jpg")
    assert result.exit_code == 0, result.output
    assert read_picture("new/out.jpg").rgb.shape == (3, 20, 24)
    assert "out.jpg" in result.output


def test_one_picture_into_a_folder(place: Path, run) -> None:
    assert run("photo.png", "--style", "style.png", "-o", "out").exit_code == 0
    assert files(place / "out") == ["photo__style.png"]


def test_every_content_in_every_style(place: Path, run) -> None:
    result = run("contents", "--style", "styles", "--style", "style.png", "-o", "out")
    assert result.exit_code == 0
    expected = [f"{c}__{s}.png" for c in ("a", "sub/b") for s in ("style", "x", "y")]
    assert files(place / "out") == sorted(expected)
    assert "6 pictures in out" in result.output


def test_a_zip_of_contents(place: Path, run) -> None:
    with zipfile.ZipFile("all.zip", "w") as archive:
        archive.write("photo.png", "in/photo.png")
    assert run("all.zip", "--style", "style.png", "-o", "out").exit_code == 0
    assert files(place / "out") == ["in/photo__style.png"]


def test_a_painted_style(place: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.apps.wishes.PAINTED", 32)
    assert run("photo.png", "--style", "glass", "-o", "out").exit_code == 0
    assert files(place / "out") == ["photo__glass.png"]


def test_a_mask_of_another_size_is_stretched(place: Path, run) -> None:
    assert run("wide.png", "--style", "style.png", "--content-mask", "left.png", "-o", "out.png").exit_code == 0
    before, after = (read_picture(p).rgb for p in ("wide.png", "out.png"))
    changed = (before - after).abs().amax((0, 1)) > 1e-6
    half = changed.numel() // 2
    assert changed[: half - 1].any()
    assert not changed[half + 1 :].any()


def test_weights_mix_all_styles_into_one(place: Path, run) -> None:
    both = ("--style", "styles/x.png", "--style", "styles/y.png")
    assert run("photo.png", *both, "--weight", 1, "--weight", 0, "-o", "mixed.png").exit_code == 0
    assert run("photo.png", "--style", "styles/x.png", "-o", "alone.png").exit_code == 0
    assert run("photo.png", "--style", "styles", "--mix", "equal", "-o", "out").exit_code == 0
    assert files(place / "out") == ["photo__x+y.png"]
    mixed, alone, equal = (read_picture(p).rgb for p in ("mixed.png", "alone.png", "out/photo__x+y.png"))
    assert (mixed - alone).abs().max() <= 1 / 255 + 1e-6
    assert not torch.equal(mixed, equal)


def test_regions(place: Path, run) -> None:
    masks = ("--content-mask", "left.png")
    assert run("photo.png", "--style", "style.png", *masks, "-o", "out.png").exit_code == 0
    made, content = read_picture("out.png").rgb, read_picture("photo.png").rgb
    assert torch.equal(made[..., 12:], content[..., 12:])
    assert not torch.equal(made[..., :12], content[..., :12])
    two = ("--content-mask", "left.png", "--content-mask", "right.png", "--style", "styles/x.png")
    assert run("photo.png", *two, "--style", "styles/y.png", "-o", "two.png").exit_code == 0
    parts = ("--style-mask", "left.png", "--style-mask", "right.png")
    assert run("photo.png", *two, *parts, "-o", "parts.png").exit_code == 0


def test_alpha_and_depth_are_kept_and_grey_becomes_colour(place: Path, run) -> None:
    alpha = torch.linspace(0, 1, 20 * 24).reshape(1, 20, 24)
    write_picture("deep.png", torch.rand(1, 20, 24).expand(3, -1, -1), alpha=alpha, depth="16")
    assert run("deep.png", "--style", "style.png", "-o", "out.png").exit_code == 0
    before, after = read_picture("deep.png"), read_picture("out.png")
    assert after.depth == "16"
    assert torch.equal(after.alpha, before.alpha)
    assert not torch.equal(after.rgb[0], after.rgb[2])


def test_options_reach_the_stylizer(place: Path, run) -> None:
    plain = ("photo.png", "--style", "style.png")
    made = {}
    for name, options in {
        "plain": (),
        "strength": ("--strength", 0.3),
        "method": ("--method", "adamean"),
        "colour": ("--preserve-color", "content"),
        "photoreal": ("--photoreal", "grid"),
        "size": ("--size", 12),
        "style_size": ("--style-size", 40),
    }.items():
        assert run(*plain, *options, "-o", f"{name}.png").exit_code == 0
        made[name] = read_picture(f"{name}.png").rgb
    assert all(not torch.equal(made["plain"], m) for n, m in made.items() if n != "plain")
    assert all(m.shape == (3, 20, 24) for m in made.values())


def test_ties_and_seed_reach_the_stylizer(place: Path, run) -> None:
    write_picture("flat.png", torch.full((3, 20, 24), 0.5))  # nothing but ties
    made = {}
    for name, options in {
        "plain": (),
        "three": ("--ties", "random", "--seed", 3),
        "again": ("--ties", "random", "--seed", 3),
        "four": ("--ties", "random", "--seed", 4),
    }.items():
        assert run("flat.png", "--style", "style.png", *options, "-o", f"{name}.png").exit_code == 0
        made[name] = read_picture(f"{name}.png").rgb
    assert torch.equal(made["three"], made["again"])
    assert not torch.equal(made["three"], made["four"])
    assert not torch.equal(made["three"], made["plain"])


def test_videos_are_handed_on(place: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = {}
    video = types.ModuleType("efdm.apps.video")
    video.run = lambda source, out, stylizer, look, **options: heard.update(source=source, out=out, **options)
    monkeypatch.setitem(sys.modules, "efdm.apps.video", video)
    result = run("film.mp4", "--style", "style.png", "-o", "new.mp4", "--temporal", "none", "--audio", "drop")
    assert result.exit_code == 0, result.output
    assert (heard["source"], heard["out"], heard["temporal"], heard["sound"]) == (
        Path("film.mp4"),
        Path("new.mp4"),
        "none",
        "drop",
    )
    assert run("film.mp4", "--style", "styles", "-o", "new.mp4").exit_code == 2
    assert run("film.mp4", "--style", "style.png", "-o", "new.mp4", "--photoreal", "grid").exit_code == 2


# --- what goes wrong -------------------------------------------------------------------------------------------------


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


def test_the_guide_says_what_videos_do_not_take() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/stylize.md").read_text()
    for option in ("--preserve-color", "--photoreal", "--content-mask", "--ties"):
        (row,) = (line for line in guide.splitlines() if line.startswith(f"| `{option}`"))
        assert "video" in row, option


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


# --- which network ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a decoder of vgg16, one that says nothing of itself, and an encoder."""
    folder = tmp_path_factory.mktemp("deep")
    save_network(build("vgg16"), folder / "network.safetensors", {})
    save_file(read(folder / "network.safetensors"), folder / "bare.safetensors")
    save_encoder(VGG("vgg16"), folder / "encoder.safetensors")
    return folder


def test_the_file_of_a_training_says_which_model_it_is(place: Path, run, deep: Path) -> None:
    own = ("photo.png", "--style", "style.png", "--vgg", deep / "encoder.safetensors", "--weights")
    result = run(*own, deep / "network.safetensors", "-o", "out.png")
    assert result.exit_code == 0, result.output
    assert run(*own, deep / "bare.safetensors", "--model", "vgg16", "-o", "named.png").exit_code == 0
    assert torch.equal(read_picture("out.png").rgb, read_picture("named.png").rgb)


@pytest.mark.parametrize(
    ("weights", "model", "message"),
    [
        (
            "network.safetensors",
            ("--model", "small"),
            "is of the network vgg16, not of small; name the model vgg16, or none",
        ),
        ("bare.safetensors", (), "does not say which network it is of; add --model, one of small, vgg16, vgg19"),
        ("bare.safetensors", ("--model", "small"), "does not fit the network small"),
        ("absent.safetensors", (), "there is no file"),
        ("network.safetensors", ("--model", "vgg61"), "is not one of 'small'"),
    ],
    ids=["another", "nameless", "nameless_and_wrong", "absent", "unknown"],
)
def test_a_network_that_does_not_fit_is_one_sentence(
    place: Path, run, deep: Path, weights: str, model: tuple[str, ...], message: str
) -> None:
    result = run("photo.png", "--style", "style.png", "--weights", deep / weights, *model, "-o", "out.png")
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(("model", "option"), [("vgg16", "--vgg FILE"), ("vgg19", "--weights FILE")])
def test_a_missing_file_is_told_with_its_option(
    place: Path, monkeypatch: pytest.MonkeyPatch, model: str, option: str
) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [place])
    given = ["photo.png", "--style", "style.png", "--model", model, "--device", "cpu", "-o", "out.png"]
    result = runner.invoke(app, given, env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert result.output.endswith(f"or give its path with {option}\n")


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
    assert "may not be written by you" in result.output


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


def test_what_becomes_of_the_sound_is_one_choice() -> None:
    from efdm.apps import video

    assert video.SOUND is stylizing.SOUND is SOUND


def test_same_names_from_two_folders_do_not_collide() -> None:
    styles = [Source("x.png", "x", Path(f"{i}/x.png")) for i in range(2)]
    assert [w.name for w in make_wishes(styles, [], "none", [], [])] == ["x", "x-2"]
