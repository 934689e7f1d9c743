"""Damaged files of arrays."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from efdm.data.arrays import is_array_file, open_array
from efdm.data.ffmpeg import DEEP, encode16
from efdm.data.images import PictureError, read_picture

ARRAY = np.random.default_rng(0).integers(0, 60_000, (9, 8, 3), dtype=np.uint16)


def save_tiff(path: Path, array: np.ndarray) -> None:
    pytest.importorskip("tifffile").imwrite(path, array, photometric="rgb")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize(("name", "read"), [("a.npy", open_array), ("a.tif", open_array), ("a.tif", is_array_file)])
def test_a_pipe_is_not_opened(tmp_path: Path, name: str, read: Callable[[Path], object]) -> None:
    pytest.importorskip("tifffile")
    os.mkfifo(tmp_path / name)
    with pytest.raises(PictureError, match="is a pipe"):
        read(tmp_path / name)


@pytest.mark.parametrize(("name", "save"), [("a.npy", np.save), ("a.tif", save_tiff)])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, save: Callable[..., None]) -> None:
    draw = random.Random(0)
    save(tmp_path / name, ARRAY)
    whole = (tmp_path / name).read_bytes()
    damaged = 0
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(3):
            data[draw.randrange(250)] = draw.randrange(256)
        (tmp_path / name).write_bytes(data)
        with suppress(PictureError):  # any other error fails the test
            damaged += 1
            if is_array_file(tmp_path / name):
                open_array(tmp_path / name)
            damaged -= 1
    assert damaged > 50


@pytest.mark.skipif(find_spec("imagecodecs") is not None, reason="imagecodecs is installed")
def test_a_compressed_tiff_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tifffile")
    monkeypatch.setitem(DEEP, "TIFF", ("le", {"compression_algo": "lzw"}))
    (tmp_path / "a.tif").write_bytes(encode16(ARRAY, "TIFF"))
    with pytest.raises(PictureError, match=r"a\.tif is compressed; run: pip install imagecodecs"):
        open_array(tmp_path / "a.tif")


@pytest.mark.parametrize("extension", [".tif", ".tiff"])
def test_other_formats_and_one_bit_are_read_as_pictures(tmp_path: Path, extension: str) -> None:
    pytest.importorskip("tifffile")
    image, path = Image.new("L", (8, 9), 255), tmp_path / f"a{extension}"
    for picture, format, options in ((image, "PNG", {}), (image.convert("1"), "TIFF", {"compression": "group4"})):
        picture.save(path, format, **options)
        assert not is_array_file(path)
        assert read_picture(path).rgb.min() == 1
    save_tiff(path, ARRAY)
    assert is_array_file(path)
