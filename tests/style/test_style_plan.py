"""Plans for stylizing files: looks, names of results, and mistakes that are reported before anything is read."""

import os
from pathlib import Path

import pytest
from trees import touch

from efdm.data import Source
from efdm.errors import SettingError
from efdm.style.options import StylizeOptions
from efdm.style.plan import Plan, make_looks, plan_files


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty files are enough, because a plan reads no picture."""
    monkeypatch.chdir(tmp_path)
    pictures = ("contents/a.png", "contents/sub/b.png", "styles/x.png", "styles/y.png", "photo.png", "style.png", "left.png")
    touch(tmp_path, [*pictures, "film.mp4", "moving.gif"])


def targets(plan: Plan) -> list[str]:
    return [plan.target(source, look).as_posix() for look in plan.looks for source in plan.contents]


def test_every_content_is_combined_with_every_style() -> None:
    plan = plan_files("contents", ["styles", "style.png"], "out")
    assert targets(plan) == [f"out/{c}__{s}.png" for s in ("x", "y", "style") for c in ("a", "sub/b")]
    assert targets(plan_files("photo.png", ["style.png"], "new/out.jpg")) == ["new/out.jpg"]
    assert targets(plan_files("photo.png", ["glass"], "out")) == ["out/photo__glass.png"]


def test_mixed_styles_are_one_look() -> None:
    (look,) = plan_files("photo.png", ["styles", "style.png"], "out", weights=[1, 2, 3]).looks
    assert (look.name, look.weights) == ("x+y+style", (1, 2, 3))
    (look,) = plan_files("photo.png", ["starry", "wave", "glass", "styles"], "out", mix="equal").looks
    assert (look.name, look.weights) == ("starry+wave+glass+x+1-more", None)


def test_several_contents_have_different_results() -> None:
    touch(Path("more"), ["photo.jpg"])
    plan = plan_files(["photo.png", "more", "film.mp4"], ["glass"], "out")
    assert targets(plan) == ["out/photo__glass.png", "out/photo-2__glass.png"]
    assert any("film.mp4" in note for note in plan.notes)
    with pytest.raises(ValueError, match=r"nothing\.png"):
        plan_files(["photo.png", "nothing.png"], ["glass"], "out")
    with pytest.raises(ValueError, match="2 pictures in 1 look"):
        plan_files(["photo.png", "more"], ["glass"], "out.png")


def test_results_are_not_used_as_contents() -> None:
    for _ in range(2):
        plan = plan_files(".", ["glass"], "contents/results")
        assert len(plan.contents) == 8
        for source in plan.contents:
            target = plan.target(source, plan.looks[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()


def test_results_among_several_contents_are_not_used() -> None:
    touch(Path(), ["out/photo__glass.png"])
    plan = plan_files(["out", "photo.png", "contents"], ["glass"], "out")  # as with * in a shell
    assert targets(plan) == [f"out/{c}__glass.png" for c in ("photo", "a", "sub/b")]
    assert plan.notes == ("out skipped; it is the folder of the results",)


def test_a_folder_without_pictures_among_several_contents_is_skipped() -> None:
    touch(Path(), ["texts/a.txt"])
    plan = plan_files(["texts", "photo.png"], ["glass"], "out")
    assert targets(plan) == ["out/photo__glass.png"]
    assert "texts holds no pictures" in plan.notes[0]
    with pytest.raises(ValueError, match="texts holds no pictures"):
        plan_files("texts", ["glass"], "out")


def test_equal_names_from_two_folders_are_numbered() -> None:
    styles = [Source("x.png", "x", Path(f"{i}/x.png")) for i in range(2)]
    assert [look.name for look in make_looks(styles, [], "none", [], [])] == ["x", "x-2"]


def test_gifs_and_unknown_files_are_videos_if_the_output_is_one() -> None:
    assert plan_files("film.mp4", ["style.png"], "out.mp4").is_video
    assert plan_files("capture.ts", ["style.png"], "out.mkv").is_video
    with pytest.raises(ValueError, match=r"out\.mp4"):
        plan_files("photo.png", ["style.png"], "out.mp4")
    assert plan_files("moving.gif", ["style.png"], "out.gif").is_video
    assert not plan_files("moving.gif", ["style.png"], "out.png").is_video


@pytest.mark.parametrize(
    ("content", "styles", "options", "message"),
    [
        ("nothing.png", ["style.png"], {}, "nothing.png"),
        ("photo.png", ["nothing.png"], {}, "starry"),
        ("photo.png", ["style.png"], {"mix": "both"}, "'none', 'equal'"),
        ("photo.png", ["styles"], {"weights": [1]}, "weight"),
        ("photo.png", ["styles"], {"style_masks": ["left.png"]}, "one per style"),
        ("photo.png", ["styles"], {"content_masks": ["left.png"]}, "one per content mask"),
        ("photo.png", ["style.png"], {"content_masks": ["left.png"], "mix": "equal"}, "mixed"),
        ("contents", ["style.png"], {}, "2 pictures in 1 look"),
        ("photo.png", ["styles"], {}, "1 picture in 2 looks"),
        ("film.mp4", ["style.png"], {}, "extension"),
        ("film.mp4", ["styles"], {}, "one look"),
    ],
)
def test_invalid_arguments(content: str, styles: list[str], options: dict, message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        plan_files(content, styles, "out.png", **options)


@pytest.mark.parametrize(
    ("content", "out", "message"),
    [
        ("photo.png", "out.xyz", "extension"),
        ("contents", "out.mp4", "2 pictures in 1 look need a folder"),
        ("photo.png", "style.png/out", "cannot be created"),
        ("film.mp4", "styles", "styles/out.mp4"),
        ("film.mp4", "new", "new/out.mp4"),
    ],
)
def test_invalid_outputs(content: str, out: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_files(content, ["style.png"], out)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder() -> None:
    Path("closed").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="not writable"):
        plan_files("contents", ["style.png"], "closed")


@pytest.mark.parametrize(
    ("content", "styles", "options", "out"),
    [
        ("photo.png", ["style.png"], {}, "photo.png"),
        ("photo.png", ["style.png"], {}, "./styles/../style.png"),
        ("photo.png", ["style.png"], {}, "link.png"),
        ("photo.png", ["styles"], {"mix": "equal"}, "styles/y.png"),
        ("photo.png", ["style.png"], {"content_masks": ["left.png"]}, "left.png"),
        ("photo.png", ["style.png"], {"style_masks": ["left.png"]}, "left.png"),
        ("contents", ["style.png"], {}, "contents"),
        ("film.mp4", ["style.png"], {}, "film.mp4"),
        ("film.mp4", ["moving.gif"], {}, "moving.gif"),
    ],
    ids=["content", "other name", "link", "one of a folder", "content mask", "style mask", "in a folder", "video", "gif"],
)
def test_inputs_are_not_overwritten(content: str, styles: list[str], options: dict, out: str) -> None:
    Path("link.png").symlink_to("style.png")
    Path("contents/a__style.png").touch()  # left by an earlier run
    with pytest.raises(ValueError, match="would overwrite"):
        plan_files(content, styles, out, **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [("method", "adian"), ("photoreal", "yes"), ("ties", "x"), ("audio", "x"), ("size", 0), ("style_size", "huge")],
)
def test_invalid_options_name_the_setting(name: str, value: object) -> None:
    with pytest.raises(SettingError) as caught:
        StylizeOptions(**{name: value})
    assert caught.value.settings == (name,)


@pytest.mark.parametrize(("name", "value"), [("ties", "random"), ("tolerance", 0.1)])
def test_options_that_conflict_are_refused_before_any_picture(name: str, value: object) -> None:
    with pytest.raises(SettingError, match="needs method='efdm'") as caught:
        StylizeOptions(method="adain", **{name: value})
    assert caught.value.settings == (name, "method")
