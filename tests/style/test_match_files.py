"""Matching of files: pictures, folders, arrays and videos."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from web_files import clip

from efdm.data import PictureError, read_picture, write_picture
from efdm.data.arrays import created_array, is_array_file, open_array
from efdm.data.images import LEVELS, Depth
from efdm.errors import SettingError
from efdm.progress import Progress
from efdm.style import match_files as module
from efdm.style import match_picture
from efdm.style.color_match import content_bins, count_chunks, match_chunk, prepare_reference
from efdm.style.jobs import Result
from efdm.style.match_files import match_files
from efdm.style.options import MatchOptions
from efdm.style.planes import from_array


def noise(seed: int, kind: str = "uint8", size: tuple[int, int] = (20, 24)) -> np.ndarray:
    unit = np.random.default_rng(seed).beta(1 + seed, 2, (*size, 3))
    return (unit * {"uint8": 255, "uint16": 65535, "float32": 1}[kind]).astype(kind)


def save(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.suffix == ".png":
        Image.fromarray(array).save(path)
    else:
        with created_array(path, array.shape, array.dtype) as made:
            made[:] = array
    return path


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return save(tmp_path / "reference.png", noise(3))


def test_a_picture_equals_the_function(tmp_path: Path, reference: Path) -> None:
    x = save(tmp_path / "x.png", noise(1))
    second = save(tmp_path / "more" / "second.png", noise(2))
    options = MatchOptions(space="lab", strength=0.7, seed=2)
    assert match_files(x, [reference, second.parent], tmp_path / "out.png", options) == Result(1)
    expected = match_picture(noise(1), [noise(3), noise(2)], space="lab", strength=0.7, seed=2)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.png")), expected)


@pytest.mark.parametrize("suffix", [".npy", ".tif"])
@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_arrays_keep_their_depth(tmp_path: Path, reference: Path, kind: str, suffix: str) -> None:
    if suffix == ".tif":
        pytest.importorskip("tifffile")
    x = save(tmp_path / f"x{suffix}", noise(1, kind))
    out = tmp_path / "new" / f"out{suffix}"
    match_files(x, [reference], out)
    assert is_array_file(x) == (suffix == ".npy" or kind != "uint8")
    made = open_array(out) if is_array_file(out) else np.asarray(Image.open(out))
    np.testing.assert_array_equal(made, match_picture(noise(1, kind), noise(3)))


def test_sixteen_bits_between_formats(tmp_path: Path, reference: Path) -> None:
    pytest.importorskip("tifffile")
    write_picture(tmp_path / "x.png", torch.from_numpy(noise(1, "uint16") / 65535).permute(2, 0, 1), depth="16")
    expected = match_picture(noise(1, "uint16"), noise(3))
    for name in ("out.tif", "out.npy"):
        match_files(tmp_path / "x.png", [reference], tmp_path / name)
        np.testing.assert_array_equal(open_array(tmp_path / name), expected)
    match_files(save(tmp_path / "x.npy", noise(1, "uint16")), [reference], tmp_path / "out.png")
    picture = read_picture(tmp_path / "out.png")
    np.testing.assert_array_equal((picture.rgb * 65535).round().permute(1, 2, 0), expected)


@pytest.mark.parametrize("depth", ["8", "16"])
def test_a_tiff_keeps_the_alpha_of_a_picture(tmp_path: Path, reference: Path, depth: Depth) -> None:
    alpha, out = torch.rand(1, 20, 24).round(), tmp_path / "out.tif"
    write_picture(tmp_path / "x.png", torch.rand(3, 20, 24), alpha=alpha, depth=depth)
    match_files(tmp_path / "x.png", [reference], out)
    pixels = np.asarray(Image.open(out)) if depth == "8" else pytest.importorskip("tifffile").imread(out)
    np.testing.assert_array_equal(pixels[..., 3] / LEVELS[depth], alpha[0])


def test_a_16_bit_tiff_keeps_its_alpha(tmp_path: Path, reference: Path) -> None:
    pytest.importorskip("tifffile")
    rgba = np.concatenate([noise(1, "uint16"), noise(2, "uint16")[..., :1]], axis=2)
    x, out = save(tmp_path / "x.tif", rgba), tmp_path / "out.tif"
    for each in (reference, x):
        match_files(x, [each], out)
        np.testing.assert_array_equal(open_array(out)[..., 3], rgba[..., 3])


def test_large_arrays_are_matched_in_chunks(tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = save(tmp_path / "x.npy", noise(1))
    match_files(x, [reference], tmp_path / "whole.npy")
    monkeypatch.setitem(module.LARGE, "uint8", 100)
    monkeypatch.setattr(module, "match_picture", None)  # must not be called
    match_files(x, [reference], tmp_path / "chunks.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "chunks.npy"), np.load(tmp_path / "whole.npy"))


def test_folders_and_failures(tmp_path: Path, reference: Path) -> None:
    for name in ("a.png", "sub/b.png"):
        save(tmp_path / "in" / name, noise(1))
    (tmp_path / "in" / "c.jpg").write_bytes(b"no picture")
    errors: dict[str, Exception] = {}
    assert match_files(tmp_path / "in", [reference], tmp_path / "out", failed=errors.__setitem__) == Result(2, 1)
    assert sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.*")) == [
        "a.png",
        "sub/b.png",
    ]
    assert list(errors) == [str(tmp_path / "in" / "c.jpg")]
    with pytest.raises(PictureError, match=r"c\.jpg"):
        match_files(tmp_path / "in", [reference], tmp_path / "out")
    with pytest.raises(ValueError, match="cannot be created"):  # concerns all pictures
        match_files(tmp_path / "in", [reference], reference / "out", failed=errors.__setitem__)


def test_masks(tmp_path: Path, reference: Path) -> None:
    x = save(tmp_path / "x.png", noise(1))
    half = np.zeros((20, 24, 3), np.uint8)
    half[:10] = 255
    mask = save(tmp_path / "mask.png", half)
    options = MatchOptions(mask=mask, reference_masks=[mask])
    match_files(x, [reference], tmp_path / "out.png", options)
    expected = match_picture(noise(1), noise(3), mask=half[..., 0], reference_mask=half[..., 0])
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.png")), expected)


def test_mistakes(tmp_path: Path, reference: Path) -> None:
    x = save(tmp_path / "x.png", noise(1))
    with pytest.raises(ValueError, match="overwrite"):
        match_files(x, [reference], reference)
    with pytest.raises(SettingError, match=r"\.xyz"):
        match_files(x, [reference], tmp_path / "out.xyz")
    with pytest.raises(SettingError, match="folder"):
        match_files(tmp_path, [reference], tmp_path / "out.png")
    with pytest.raises(SettingError, match="mask"):
        match_files(x, [reference], tmp_path / "out.png", MatchOptions(reference_masks=[x, x]))
    with pytest.raises(SettingError, match="space"):
        MatchOptions(space="cmyk")
    with pytest.raises(SettingError, match="tolerance"):
        MatchOptions(method="joint", tolerance=0.1)
    with pytest.raises(PictureError, match="float32"):
        match_files(save(tmp_path / "f.npy", noise(1, "float32")), [reference], tmp_path / "out.png")


def test_a_video_is_one_distribution_and_keeps_its_sound(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    av = pytest.importorskip("av")
    from efdm.data.video import VideoReader, VideoWriter

    times, written, write = [0, 1, 4, 5, 9], list[torch.Tensor](), VideoWriter.write
    video = clip(tmp_path / "in.mp4", frames=5, times=times)
    monkeypatch.setattr(VideoWriter, "write", lambda self, rgb, *times: written.append(rgb) or write(self, rgb, *times))
    seen: list[Progress] = []
    assert match_files(video, [reference], tmp_path / "out.mp4", progress=seen.append) == Result(5)
    assert [(each.done, each.total) for each in seen] == [(i, 10) for i in range(1, 11)]
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert len(file.streams.audio) == 1
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert [frame.time for frame in reader] == [Fraction(time, 16) for time in times]
    with VideoReader(video) as reader:
        decoded = torch.cat([frame.rgb for frame in reader], 1).permute(1, 2, 0).numpy()
    expected = match_picture(decoded, noise(3)).reshape(-1, 3)
    made = torch.cat(written, 1).flatten(1).T.numpy()
    np.testing.assert_array_equal(np.sort(made, 0), np.sort(expected, 0))
    assert match_files(video, [reference], tmp_path / "out.mp4", MatchOptions(space="luminance", audio="drop")) == Result(5)
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert not file.streams.audio
    with pytest.raises(SettingError, match="joint"):
        match_files(video, [reference], tmp_path / "out.mp4", MatchOptions(method="joint"))


def test_a_gif_is_matched_as_a_video_if_the_output_is_one(tmp_path: Path, reference: Path) -> None:
    frames = [Image.fromarray(noise(seed, size=(16, 24))) for seed in range(3)]
    frames[0].save(tmp_path / "in.gif", save_all=True, append_images=frames[1:])
    assert match_files(tmp_path / "in.gif", [reference], tmp_path / "out.gif") == Result(3)
    assert match_files(tmp_path / "in.gif", [reference], tmp_path / "out.png") == Result(1)


def test_static_parts_of_a_video_do_not_flicker() -> None:
    still = noise(1, size=(64, 64))
    other = still.copy()
    other[:20] = 255  # beyond the window of the local mean, nothing may change
    chunks = [(planes, content_bins(planes, "rgb", "smooth", 0)) for planes in map(from_array, (still, other))]
    curves = count_chunks([bins for _, bins in chunks], 256, prepare_reference(noise(3)), 0.0)
    first, second = (match_chunk(curves, planes, bins, "rgb", 1.0)[:, 36:] for planes, bins in chunks)
    assert (first != second).float().mean() < 0.05
    assert (first <= second).all(), "values that share a bin are ranked by time, so they change at most in one direction"
