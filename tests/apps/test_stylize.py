from __future__ import annotations

import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from stylize_commands import app, files, runner

from efdm.apps.cli import stylize as stylizing
from efdm.apps.wishes import SOUND, make_wishes
from efdm.data import Source, read_picture, write_picture
from efdm.models import VGG, build
from efdm.models.weights import read, save_encoder, save_network

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


def test_a_painted_style(place: Path, run) -> None:
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


def test_the_guide_says_what_videos_do_not_take() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/stylize.md").read_text()
    for option in ("--preserve-color", "--photoreal", "--content-mask", "--ties"):
        (row,) = (line for line in guide.splitlines() if line.startswith(f"| `{option}`"))
        assert "video" in row, option


def test_what_becomes_of_the_sound_is_one_choice() -> None:
    from efdm.apps import video

    assert video.SOUND is stylizing.SOUND is SOUND


def test_same_names_from_two_folders_do_not_collide() -> None:
    styles = [Source("x.png", "x", Path(f"{i}/x.png")) for i in range(2)]
    assert [w.name for w in make_wishes(styles, [], "none", [], [])] == ["x", "x-2"]


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
        ("network.safetensors", ("--model", "small"), "holds the network vgg16, not small"),
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
