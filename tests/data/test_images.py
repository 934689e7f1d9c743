import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from PIL import Image, ImageCms, ImageOps
from png16 import chunk, png16
from torch import Tensor

from efdm.data import PictureError, read_mask, read_picture, resize, resize_short_side
from efdm.data import images as images_file
from efdm.errors import MissingExtraError


def noise(height: int = 5, width: int = 7, channels: int = 3, top: int = 255) -> np.ndarray:
    dtype = np.uint8 if top == 255 else np.uint16
    return np.random.default_rng(0).integers(0, top + 1, (height, width, channels)).astype(dtype)


def levels(values: Tensor, top: int = 255) -> np.ndarray:
    return (values * top).round().permute(1, 2, 0).numpy().astype(int)


def saved(folder: Path, image: Image.Image, name: str = "picture.png", **options: object) -> Path:
    image.save(folder / name, **options)
    return folder / name


# Pillow 12 cannot read the YCbCr TIFF that it writes
MODES = ["1", "L", "P", "RGB", "CMYK", *(["YCbCr"] if int(PIL.__version__.split(".")[0]) >= 13 else [])]


@pytest.mark.parametrize("mode", MODES)
def test_opaque_modes_become_rgb(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(noise()).convert(mode)
    name = {"CMYK": "p.tif", "YCbCr": "p.tif"}.get(mode, "p.png")
    picture = read_picture(saved(tmp_path, image, name))
    assert np.array_equal(levels(picture.rgb), np.asarray(image.convert("RGB")))
    assert (picture.rgb.dtype, picture.alpha, picture.depth) == (torch.float32, None, "8")


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_alpha(tmp_path: Path, mode: str) -> None:
    values = noise(channels=len(mode))
    picture = read_picture(saved(tmp_path, Image.fromarray(values, mode)))
    assert np.array_equal(levels(picture.rgb), values[..., [0, 0, 0]] if mode == "LA" else values[..., :3])
    assert np.array_equal(levels(picture.alpha), values[..., -1:])


def test_palette_with_a_transparent_entry(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    picture = read_picture(saved(tmp_path, image, transparency=0))
    assert levels(picture.alpha).ravel().tolist() == [0, 255]
    assert levels(picture.rgb)[0, 1].tolist() == [200, 100, 50]


@pytest.mark.parametrize(("channels", "name"), [(1, "p.png"), (1, "p.tif"), (2, "p.png"), (3, "p.png"), (4, "p.png")])
def test_16_bits_keep_every_level(tmp_path: Path, channels: int, name: str) -> None:
    values = noise(channels=channels, top=65535)
    if name == "p.tif":
        saved(tmp_path, Image.fromarray(values[..., 0]), name)
    else:
        (tmp_path / name).write_bytes(png16(values))
    picture = read_picture(tmp_path / name)
    rgb = values[..., :3] if channels > 2 else values[..., [0, 0, 0]]
    assert picture.depth == "16"
    assert np.array_equal(levels(picture.rgb, 65535), rgb)
    assert (picture.alpha is not None) == (channels in (2, 4))
    if picture.alpha is not None:
        assert np.array_equal(levels(picture.alpha, 65535), values[..., -1:])


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png"])
def test_animation_gives_its_first_frame(tmp_path: Path, name: str) -> None:
    red, blue = Image.new("RGB", (4, 4), (255, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 255))
    picture = read_picture(saved(tmp_path, red, name, save_all=True, append_images=[blue], lossless=True))
    assert levels(picture.rgb)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("name", "orientation"), [*(("o.png", n) for n in range(1, 9)), ("o.jpg", 6), ("o.webp", 7), ("o.tif", 8)]
)
def test_orientation_is_applied(tmp_path: Path, orientation: int, name: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(noise(16, 24)), name, exif=exif, lossless=True)
    expected = ImageOps.exif_transpose(Image.open(path))
    assert np.array_equal(levels(read_picture(path).rgb), np.asarray(expected))
    if name == "o.png":
        upright = {6: np.rot90(noise(16, 24), -1), 8: np.rot90(noise(16, 24)), 2: noise(16, 24)[:, ::-1]}
        assert np.array_equal(np.asarray(expected), upright.get(orientation, np.asarray(expected)))


def test_orientation_of_a_16_bit_png(tmp_path: Path) -> None:
    values = noise(3, 4, top=65535)
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "o.png").write_bytes(png16(values, chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))))
    assert np.array_equal(levels(read_picture(tmp_path / "o.png").rgb, 65535), np.rot90(values, -1))


def wide_profile() -> bytes:
    """Return sRGB with its red and green colorants exchanged, so a conversion changes colours visibly."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    count = struct.unpack(">I", data[128:132])[0]
    entries = {bytes(data[at : at + 4]): at for at in range(132, 132 + 12 * count, 12)}
    red, green = entries[b"rXYZ"], entries[b"gXYZ"]
    data[red : red + 4], data[green : green + 4] = b"gXYZ", b"rXYZ"
    return bytes(data)


def icc_chunk(profile: bytes) -> bytes:
    return chunk(b"iCCP", b"p\0\0" + zlib.compress(profile))


def test_a_profile_is_applied_and_keeps_alpha(tmp_path: Path) -> None:
    image = Image.new("RGB", (2, 2), (200, 40, 40))
    plain, managed = saved(tmp_path, image, "a.png"), saved(tmp_path, image, "b.png", icc_profile=wide_profile())
    assert levels(read_picture(plain).rgb)[0, 0].tolist() == [200, 40, 40]
    red, green, _ = levels(read_picture(managed).rgb)[0, 0].tolist()
    assert red < 60
    assert green > 180
    values = np.full((2, 2, 4), 10280, np.uint16)
    values[..., 0], values[..., 3] = 51400, 12345
    (tmp_path / "p.png").write_bytes(png16(values, icc_chunk(wide_profile())))
    picture = read_picture(tmp_path / "p.png")
    assert picture.depth == "16"
    assert levels(picture.alpha, 65535)[0, 0, 0] == 12345
    assert picture.rgb[1].min() > 0.7


def test_an_srgb_profile_changes_nothing(tmp_path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    path = saved(tmp_path, Image.fromarray(noise(64, 64)), icc_profile=profile)
    assert np.array_equal(levels(read_picture(path).rgb), noise(64, 64))
    (tmp_path / "p.png").write_bytes(png16(noise(top=65535), icc_chunk(profile)))
    assert np.array_equal(levels(read_picture(tmp_path / "p.png").rgb, 65535), noise(top=65535))


@pytest.mark.parametrize("profile", [b"nonsense", b"\0" * 200, wide_profile()[:300]], ids=["text", "zeros", "cut_short"])
def test_broken_profile_is_ignored(tmp_path: Path, profile: bytes) -> None:
    path = saved(tmp_path, Image.fromarray(noise()), icc_profile=profile)
    assert np.array_equal(levels(read_picture(path).rgb), noise())


def test_draft_of_a_jpeg_is_at_least_twice_as_large(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.new("RGB", (1600, 1200)), "large.jpg")
    with open(path, "rb") as file:
        assert images_file.decode(file, "large.jpg", near=250).shape == (600, 800, 3)


def test_each_failure_is_explained(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("not a picture")
    saved(tmp_path, Image.new("F", (2, 2)), "f.tif")
    cases = {"missing.png": "does not exist", ".": "is a folder", "empty.png": "is empty", "text.png": "not a picture"}
    cases["f.tif"] = "32 bits"
    pytest.importorskip("tifffile").imwrite(tmp_path / "rgb.tif", np.zeros((4, 4, 3), np.float32), photometric="rgb")
    cases["rgb.tif"] = "8 or 16 bits"
    for name, sentence in cases.items():
        with pytest.raises(PictureError, match=sentence) as caught:
            read_picture(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 3)], ids=["gray", "rgb"])
def test_float_tiff_without_tifffile_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    photometric = "rgb" if len(shape) == 3 else "minisblack"
    pytest.importorskip("tifffile").imwrite(tmp_path / "f.tif", np.zeros(shape, np.float32), photometric=photometric)
    for installed in (True, False):
        monkeypatch.setattr(images_file, "find_spec", lambda name, found=installed: found or None)
        with pytest.raises(PictureError, match=r"f\.tif") as caught:
            read_picture(tmp_path / "f.tif")
        assert ('pip install "efdm[tiff]"' in str(caught.value)) != installed


@pytest.mark.parametrize("name", ["t.png", "t.jpg", "t.webp", "t.gif", "t.bmp", "t.tif", "t16.png"])
def test_truncated(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, Image.fromarray(noise(64, 64)), name)
    data = png16(noise(64, 64, top=65535)) if name == "t16.png" else path.read_bytes()
    for share in (0.04, 0.6, 0.95):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(PictureError, match=r"\.\w+ is cut short or damaged"):
            read_picture(path)


def test_transparent_colour_of_a_16_bit_png_becomes_alpha(tmp_path: Path) -> None:
    values = noise(4, 4, top=65535)
    values[1, 2] = (1, 2, 3)
    (tmp_path / "t.png").write_bytes(png16(values, chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3))))
    picture = read_picture(tmp_path / "t.png")
    assert np.argwhere(levels(picture.alpha, 65535)[..., 0] == 0).tolist() == [[1, 2]]
    assert np.array_equal(levels(picture.rgb, 65535), values)


def test_16_bit_png_without_pyav_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep.png").write_bytes(png16(noise(top=65535)))
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"efdm\["):
        read_picture(tmp_path / "deep.png")


@pytest.mark.parametrize("name", ["b.png", "b.jpg", "b.webp", "b.gif", "b.bmp", "b.tif"])
def test_too_many_pixels_are_refused_before_decoding(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, Image.new("RGB", (40, 30)), name)
    if name in ("b.png", "b.jpg"):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # a global limit that must not apply
    assert read_picture(path, max_pixels=1200).rgb.shape == (3, 30, 40)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(PictureError, match=r"40 x 30 pixels, at most 1199"):
        read_picture(path, max_pixels=1199)


def test_mask_is_the_brightness_times_alpha(tmp_path: Path) -> None:
    gray = Image.fromarray(np.array([[0, 127, 128, 255]], np.uint8))
    mask = read_mask(saved(tmp_path, gray))
    assert torch.allclose(mask, torch.tensor([[0, 127, 128, 255]]) / 255)
    clear = Image.fromarray(np.array([[[255, 255], [255, 0]]], np.uint8), "LA")
    assert read_mask(saved(tmp_path, clear)).tolist() == [[1, 0]]


@pytest.mark.parametrize("values", [[0, 0], [0, 1]], ids=["black", "labels"])
def test_a_mask_that_selects_nothing_is_named(tmp_path: Path, values: list[int]) -> None:
    with pytest.raises(PictureError, match=r"\.png.*255"):
        read_mask(saved(tmp_path, Image.fromarray(np.array([values], np.uint8))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("size", [(13, 40), (64, 20), (90, 90)], ids=["smaller", "both_ways", "larger"])
def test_resize_agrees_with_pillows_bicubic(size: tuple[int, int], dtype: torch.dtype) -> None:
    values = noise(48, 64) // 2 + 64  # away from the ends: Pillow also clamps between its two passes
    tensor = torch.from_numpy(values).permute(2, 0, 1)
    tensor = tensor / 255 if dtype == torch.float32 else tensor
    ours = resize(tensor, size)
    assert ours.dtype == dtype
    pillow = np.asarray(Image.fromarray(values).resize(size[::-1], Image.Resampling.BICUBIC)).astype(int)
    assert abs(levels(ours if dtype == torch.float32 else ours / 255) - pillow).max() <= 1
    assert ours.min() >= 0
    assert dtype == torch.uint8 or ours.max() <= 1


def test_resize_takes_batches_and_stays_in_range() -> None:
    assert torch.allclose(resize(torch.full((2, 3, 9, 9), 0.3), (4, 5)), torch.tensor(0.3))
    edge = resize((torch.arange(16) > 7).float().expand(3, 16, 16), (40, 40))
    assert (edge.min(), edge.max()) == (0, 1)  # bicubic interpolation overshoots
    same = torch.rand(3, 4, 5)
    assert torch.equal(resize(same, (4, 5)), same)
    with pytest.raises(ValueError, match="at least 1"):
        resize(same, (0, 5))
    for shape, expected in (((40, 60), (20, 30)), ((60, 40), (30, 20)), ((7, 7), (20, 20)), ((30, 31), (20, 21))):
        assert resize_short_side(torch.rand(3, *shape), 20).shape == (3, *expected)


def test_the_repr_of_a_picture_is_short() -> None:
    assert repr(images_file.Picture(torch.rand(3, 40, 60))) == "Picture(40 x 60, 8 bits)"
    assert repr(images_file.Picture(torch.rand(3, 4, 6), torch.rand(1, 4, 6), "16")) == "Picture(4 x 6, 16 bits, alpha)"
