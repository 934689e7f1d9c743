from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch
from PIL import Image

from efdm import files
from efdm.data import WRITABLE, PictureError, read_picture, write_picture
from efdm.data import images as images_file


@pytest.mark.parametrize("extension", sorted(WRITABLE))
def test_written_is_read(tmp_path: Path, extension: str) -> None:
    smooth = torch.linspace(0, 1, 3 * 16 * 16).reshape(3, 16, 16)
    path = tmp_path / "new" / "folder" / f"p{extension.upper()}"
    write_picture(path, smooth, quality=100)
    exact = extension not in (".jpg", ".jpeg", ".webp", ".avif")
    assert (read_picture(path).rgb - smooth).abs().max() <= (0.5 / 255 + 1e-6 if exact else 0.03)
    assert Image.open(path).format == WRITABLE[extension]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("extension", [".png", ".tif", ".webp"])
def test_alpha_is_kept(tmp_path: Path, extension: str) -> None:
    rgb, alpha = torch.rand(3, 6, 5), torch.rand(1, 6, 5)
    write_picture(tmp_path / f"p{extension}", rgb, alpha=alpha)
    read = read_picture(tmp_path / f"p{extension}").alpha
    assert (read - alpha).abs().max() <= 0.5 / 255 + 1e-6


@pytest.mark.parametrize("extension", [".jpg", ".bmp"])
def test_formats_without_alpha_are_composited_over_white(tmp_path: Path, extension: str) -> None:
    write_picture(tmp_path / f"p{extension}", torch.zeros(3, 4, 4), alpha=torch.full((1, 4, 4), 0.25))
    picture = read_picture(tmp_path / f"p{extension}")
    assert picture.alpha is None
    assert picture.rgb.mean().item() == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("depth", ["8", "16"])
def test_round_trip_is_exact(tmp_path: Path, depth: str) -> None:
    top = images_file.LEVELS[depth]
    first = torch.arange(4 * 20 * 30).reshape(4, 20, 30) * 37 % (top + 1) / top
    write_picture(tmp_path / "a.png", first[:3], alpha=first[3:], depth=depth)
    a = read_picture(tmp_path / "a.png")
    assert a.depth == depth
    assert torch.equal(torch.cat([a.rgb, a.alpha]), first)
    write_picture(tmp_path / "b.png", a.rgb, alpha=a.alpha, depth=a.depth)
    assert (tmp_path / "b.png").read_bytes() == (tmp_path / "a.png").read_bytes()


@pytest.mark.parametrize("channels", [3, 4])
def test_tiff_stores_16_bits(tmp_path: Path, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (9, 7, channels), dtype=np.uint16)
    values = torch.from_numpy(pixels / 65535).permute(2, 0, 1)
    write_picture(tmp_path / "a.tif", values[:3], alpha=values[3:] if channels == 4 else None, depth="16")
    np.testing.assert_array_equal(pytest.importorskip("tifffile").imread(tmp_path / "a.tif"), pixels)
    assert Image.open(tmp_path / "a.tif").mode == ("RGB" if channels == 3 else "RGBA")


def test_values_are_clamped_and_rounded(tmp_path: Path) -> None:
    values = torch.tensor([-1.0, 0.4 / 255, 0.6 / 255, 254.4 / 255, 254.6 / 255, 7.0, float("inf")])
    write_picture(tmp_path / "p.png", values.expand(3, 1, -1))
    assert (read_picture(tmp_path / "p.png").rgb[0, 0] * 255).round().tolist() == [0, 0, 1, 254, 255, 255, 255]


def test_invalid_values_and_shapes_are_refused(tmp_path: Path) -> None:
    good = torch.rand(3, 4, 4)
    spoilt = good.clone()
    spoilt[1, 2, 3] = float("nan")
    cases = [
        (spoilt, {}, "contains NaN"),
        (good, {"alpha": torch.full((1, 4, 4), float("nan"))}, "contains NaN"),
        (good[None], {}, "expected \\(3, h, w\\)"),
        (good[:, :0], {}, "expected \\(3, h, w\\)"),
        (good.to(torch.uint8), {}, "divide by 255"),
        (good, {"alpha": torch.rand(1, 4, 5)}, "expected \\(1, 4, 4\\)"),
        (good, {"depth": "12"}, "'12'"),
        (good, {"quality": 0}, "1 to 100"),
    ]
    for rgb, options, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            write_picture(tmp_path / "below" / "p.png", rgb, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "below").exists()


def test_extension_selects_the_format(tmp_path: Path) -> None:
    for name in ("p.xyz", "p"):
        with pytest.raises(PictureError, match=r"\.png, \.jpg, .*\.bmp"):
            write_picture(tmp_path / name, torch.rand(3, 2, 2))
    with pytest.raises(PictureError, match=r"as WEBP .*try \.png"):
        write_picture(tmp_path / "p.webp", torch.zeros(3, 1, 16384))
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_accessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(PictureError, match="not a folder"):
        write_picture(tmp_path / "file" / "p.png", torch.rand(3, 2, 2))
    with pytest.raises(PictureError, match="is a folder"):
        write_picture(tmp_path / "folder.png", torch.rand(3, 2, 2))

    def denied(*_: object, **__: object) -> BinaryIO:
        raise PermissionError(13, "Permission denied")

    for module in (files, images_file):  # an administrator may read and write everything
        monkeypatch.setattr(module, "open", denied, raising=False)
    for call in (lambda: write_picture(tmp_path / "p.png", torch.rand(3, 2, 2)), lambda: read_picture(tmp_path / "file")):
        with pytest.raises(PictureError, match="permission denied"):
            call()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.png"]
