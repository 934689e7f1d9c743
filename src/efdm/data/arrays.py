"""Arrays ``(h, w)`` or ``(h, w, channels)`` of any depth: NumPy files and TIFF, also larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efdm.data.images import PictureError, StrPath, file_error
from efdm.errors import MissingExtraError, requires
from efdm.files import atomic_path

TIFF = (".tif", ".tiff")
ARRAYS = (".npy", *TIFF)
KINDS = ("uint8", "uint16", "float16", "float32", "float64")


def is_array_file(path: StrPath) -> bool:
    """Return True for ``.npy``, and for TIFF other than 8-bit gray, RGB and RGBA, which are read as pictures.

    Without the package tifffile, every TIFF is read as a picture.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in TIFF or find_spec("tifffile") is None:
        return suffix == ".npy"
    with _reading(path) as file:
        page = file.pages[0]
        return page.dtype != np.uint8 or len(page.shape) > 3 or page.samplesperpixel not in (1, 3, 4)


def open_array(path: StrPath) -> NDArray[Any]:
    """Return the array of a file, mapped into memory for ``.npy`` and uncompressed TIFF."""
    with _explaining(path):
        is_tiff = Path(path).suffix.lower() in TIFF
        array = _open_tiff(path) if is_tiff else np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.name not in KINDS or array.ndim not in (2, 3) or not array.size:
        found = f"{array.dtype} of shape {array.shape}"
        raise PictureError(f"{path} contains {found}; expected (h, w) or (h, w, channels) of {', '.join(KINDS)}")
    return array


@contextmanager
def _reading(path: StrPath) -> Iterator[Any]:
    with requires("tiff"):
        import tifffile
    with _explaining(path), tifffile.TiffFile(path) as file:
        yield file


@contextmanager
def _explaining(path: StrPath) -> Iterator[None]:
    try:
        yield
    except (PictureError, MissingExtraError):
        raise
    except OSError as error:
        raise file_error(error, path) from error
    except MemoryError as error:
        raise PictureError(f"{path} does not fit into memory; make it smaller") from error
    except Exception as error:  # the readers raise many exception types for damaged files
        raise PictureError(f"{path} is not a NumPy or TIFF file or is damaged ({error}); copy or save it again") from error


def _open_tiff(path: StrPath) -> NDArray[Any]:
    with _reading(path) as file:
        series = file.series[0]
        if series.dataoffset is None:  # compressed
            array: NDArray[Any] = series.asarray()
        else:
            from tifffile import memmap

            array = memmap(path, mode="r")
        return np.moveaxis(array, 0, -1) if series.axes.endswith("SYX") and array.ndim == 3 else array


@contextmanager
def created_array(path: StrPath, shape: tuple[int, ...], kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array to be filled, in a ``.npy`` or TIFF file that appears under its name after the ``with`` block."""
    suffix = Path(path).suffix.lower()
    if suffix not in ARRAYS:
        raise PictureError(f"{path} cannot hold {kind} of shape {shape}; use one of {', '.join(ARRAYS)}")
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(target) as temporary:
            if suffix == ".npy":
                array: Any = np.lib.format.open_memmap(temporary, "w+", kind, shape)
            else:
                with requires("tiff"):
                    import tifffile
                photometric = "rgb" if shape[2:] in ((3,), (4,)) else "minisblack"
                array = tifffile.memmap(temporary, shape=shape, dtype=kind, photometric=photometric, bigtiff=True)
            yield array
            array.flush()
    except OSError as error:
        raise file_error(error, path) from error
