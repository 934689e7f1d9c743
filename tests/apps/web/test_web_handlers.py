from pathlib import Path

import pytest
import torch
from web_files import classifier, clip, photo

from efdm.apps.web.handlers import Handlers, Limits, Mixture
from efdm.data import PictureError, read_picture, write_picture
from efdm.data.embedded import styles
from efdm.errors import SettingError
from efdm.models.weights import MissingWeights, find
from efdm.progress import Progress
from efdm.style import Stylizer, match_picture

STARRY = Mixture(["starry"], [])
SIZE = 64


@pytest.fixture
def handlers(tmp_path: Path) -> Handlers:
    folder = tmp_path / "results"
    folder.mkdir()
    return Handlers(folder, limits=Limits(megapixels=1, seconds=2, pictures=2))


@pytest.fixture(scope="module")
def stylizer() -> Stylizer:
    return Stylizer.from_pretrained("small", "cpu")


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    return photo(tmp_path / "cat.png")


@pytest.mark.parametrize("options", [{}, {"strength": 0.4, "preserve_color": "content", "photoreal": "guided"}])
def test_a_result_equals_the_python_call(handlers: Handlers, stylizer: Stylizer, cat: Path, options: dict) -> None:
    before, after = handlers.stylize(cat, STARRY, size=SIZE, **options)
    expected = stylizer.stylize(cat, "starry", size=SIZE, **options)
    write_picture(after.with_name("expected.png"), expected.rgb)
    assert after.name == "cat__starry.png"
    assert after.read_bytes() == after.with_name("expected.png").read_bytes()
    assert (read_picture(before).rgb - read_picture(cat).rgb).abs().mean() < 0.02
    assert (read_picture(after).rgb - read_picture(cat).rgb).abs().mean() > 0.01


def test_styles_are_mixed_by_the_point_on_the_pad(handlers: Handlers, stylizer: Stylizer, cat: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.png"
    own.write_bytes(styles()["fauve"].read_bytes())
    _, after = handlers.stylize(cat, Mixture(["starry", "wave", "glass"], [own], x=0.25, y=0.5), size=SIZE)
    look = stylizer.prepare(["starry", "wave", "glass", "fauve"], weights=[3, 1, 3, 1], size=SIZE)
    expected = stylizer.stylize(cat, look, size=SIZE).rgb
    assert (read_picture(after).rgb - expected).abs().max() <= 1 / 255 + 1e-6


def test_prepared_styles_are_used_again_up_to_a_limit(
    handlers: Handlers, cat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, prepared, prepare = tmp_path / "own.png", list[object](), Stylizer.prepare
    write_picture(own, torch.rand(3, 64, 64))
    monkeypatch.setattr(Stylizer, "prepare", lambda *a, **k: (prepared.append(a), prepare(*a, **k))[1])
    for _ in range(2):
        handlers.stylize(cat, Mixture(["starry"], [own]), size=SIZE)
    assert len(prepared) == len(handlers.looks) == 2
    first, second = handlers.looks.values()
    assert not any(part._cache for look in (first, second) for parts in look.features for part in parts)
    monkeypatch.setattr("efdm.apps.web.handlers.MAX_BYTES", first.nbytes + second.nbytes)
    handlers.stylize(cat, STARRY, size=SIZE)  # the other style is now the least recently used
    handlers.stylize(cat, STARRY, size=SIZE - 1)
    assert [(path.stem, size) for _, path, size in handlers.looks] == [("starry", SIZE), ("starry", SIZE - 1)]


def test_alpha_is_kept(handlers: Handlers, tmp_path: Path) -> None:
    alpha = torch.ones(1, 40, 40)
    alpha[..., :20] = 0
    write_picture(tmp_path / "half.png", torch.rand(3, 40, 40), alpha=alpha)
    before, after = handlers.stylize(tmp_path / "half.png", STARRY, size=SIZE)
    assert torch.equal(read_picture(after).alpha, alpha)
    assert (read_picture(before).rgb[..., :16] > 0.95).all()


def test_every_model_with_every_method(handlers: Handlers, stylizer: Stylizer, cat: Path) -> None:
    reports: list[Progress] = []
    found = handlers.compare(cat, STARRY, models=["small"], methods=["efdm", "adain"], size=SIZE, progress=reports.append)
    assert [label for _, label in found] == ["small, efdm", "small, adain"]
    assert [(r.done, r.total) for r in reports] == [(0, 2), (1, 2)]
    for (path, _), method in zip(found, ("efdm", "adain"), strict=True):
        expected = stylizer.stylize(cat, "starry", method=method, size=SIZE).rgb
        assert (read_picture(path).rgb - expected).abs().max() <= 0.5 / 255 + 1e-6


def test_a_video_keeps_its_sound(handlers: Handlers, tmp_path: Path) -> None:
    import av

    reports: list[Progress] = []
    made = handlers.stylize_video(clip(tmp_path / "clip.mp4"), STARRY, size=48, temporal="none", progress=reports.append)
    assert made.name == "clip__starry.mp4"
    assert [r.done for r in reports] == list(range(1, 9))
    with av.open(str(made)) as file:
        assert file.streams.audio[0].codec_context.name == "aac"
        assert sum(1 for _ in file.decode(video=0)) == 8


@pytest.mark.parametrize(
    ("frames", "size", "words"), [(20, (48, 64), ("2 s", "2 seconds")), (2, (1000, 1002), ("1002 x 1000",))]
)
def test_videos_that_are_too_long_or_too_large(
    handlers: Handlers, tmp_path: Path, frames: int, size: tuple[int, int], words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingError) as error:
        handlers.stylize_video(clip(tmp_path / "clip.mp4", frames=frames, size=size), STARRY)
    assert all(word in str(error.value) for word in words)


def test_a_video_whose_header_understates_its_length(
    handlers: Handlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handlers, "_check_video", lambda *_: 3)
    with pytest.raises(SettingError, match="longer than 2 s"):
        handlers.stylize_video(clip(tmp_path / "clip.mp4"), STARRY, size=48)
    assert not list(handlers.folder.rglob("*.mp4"))


def test_a_video_that_is_cut_short_names_no_file_of_the_app(handlers: Handlers, tmp_path: Path) -> None:
    video = clip(tmp_path / "clip.mp4", frames=14, options={"movflags": "+faststart"})
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    with pytest.raises(PictureError, match="cut short") as error:
        handlers.stylize_video(video, STARRY, size=48)
    assert "saved" not in str(error.value)


def test_matched_colours_equal_the_python_call(handlers: Handlers, cat: Path, tmp_path: Path) -> None:
    references = [photo(tmp_path / "rocket.png", "rocket"), photo(tmp_path / "coffee.png", "coffee")]
    _, after = handlers.match_colors(cat, references, space="lab", strength=0.5)
    expected = match_picture(read_picture(cat), references, space="lab", strength=0.5)
    assert (read_picture(after).rgb - expected.rgb).abs().max() <= 0.5 / 255 + 1e-6
    with pytest.raises(SettingError, match="1 to 16"):
        handlers.match_colors(cat, [])


def test_probabilities_by_picture_and_classifier(tmp_path: Path) -> None:
    paths = {name: classifier(tmp_path / f"{name}.safetensors", seed) for seed, name in enumerate(("erm", "efdmix"))}
    handlers = Handlers(tmp_path, classifiers=paths)
    twins = [photo(tmp_path / folder / "cat.png") for folder in "ab"]
    found = handlers.classify([*twins, photo(tmp_path / "rocket.png", "rocket")])
    assert list(found) == ["cat.png", "cat.png-2", "rocket.png"]
    assert found["cat.png"] == found["cat.png-2"] != found["rocket.png"]
    for row in found.values():
        assert list(row) == ["erm", "efdmix"]
        for probabilities in row.values():
            assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
            assert list(probabilities.values()) == sorted(probabilities.values(), reverse=True)
    assert found["cat.png"]["erm"] != found["cat.png"]["efdmix"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("text.png", "not a picture"), ("large.png", "1100 x 1000"), ("absent.png", "absent.png"), (None, "upload")],
)
def test_contents_that_cannot_be_used(handlers: Handlers, tmp_path: Path, name: str | None, words: str) -> None:
    (tmp_path / "text.png").write_text("no picture")
    write_picture(tmp_path / "large.png", torch.zeros(3, 1000, 1100))
    with pytest.raises((PictureError, SettingError), match=words):
        handlers.stylize(None if name is None else tmp_path / name, STARRY)
    assert not list(handlers.folder.iterdir())


@pytest.mark.parametrize("mixture", [Mixture([], []), Mixture(["starry"] * 3, ["a.png", "b.png"])])
def test_the_number_of_styles_is_limited(handlers: Handlers, cat: Path, mixture: Mixture) -> None:
    with pytest.raises(SettingError, match="1 to 4"):
        handlers.stylize(cat, mixture)


def test_large_styles_and_many_pictures_are_refused(handlers: Handlers, cat: Path, tmp_path: Path) -> None:
    write_picture(tmp_path / "large.png", torch.zeros(3, 1000, 1100))
    with pytest.raises(PictureError, match="1100 x 1000"):
        handlers.stylize(cat, Mixture([], [tmp_path / "large.png"]))
    with pytest.raises(PictureError, match="1100 x 1000"):
        handlers.classify([tmp_path / "large.png"])
    with pytest.raises(SettingError, match="1 to 2"):
        handlers.classify([cat] * 3)


def test_comparing_needs_a_model_and_a_method(handlers: Handlers, cat: Path) -> None:
    with pytest.raises(SettingError, match="one method"):
        handlers.compare(cat, STARRY, models=["small"], methods=[])


def test_only_models_with_weights_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [tmp_path])
    assert Handlers(tmp_path).models == ["small"]
    mine = {"mine": find("small")}
    assert Handlers(tmp_path, vgg=tmp_path / "vgg.safetensors", networks=mine).models == ["small", "vgg16", "mine"]
    with pytest.raises(MissingWeights, match="nowhere"):
        Handlers(tmp_path, networks={"mine": "nowhere"})
