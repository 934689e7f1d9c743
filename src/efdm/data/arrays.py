"""Arrays ``(h, w)`` or ``(h, w, channels)`` in NumPy and TIFF files, of any depth and possibly larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efdm.data.images import PictureError, StrPath, created, open_file, reading, refuse_pipe
from efdm.errors import requires

TIFF = (".tif", ".tiff")
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # both byte orders; BigTIFF has 43 instead of 42
ARRAYS = (".npy", *TIFF)
KINDS = ("uint8", "uint16", "float16", "float32", "float64")
UNASSOCIATED_ALPHA = 2  # value of the tag ExtraSamples
DAMAGED = "is not a NumPy or TIFF file or is damaged"


def is_array_file(path: StrPath) -> bool:
    """Return True for ``.npy``, and for TIFF other than 1- and 8-bit gray, RGB and RGBA, which are read as pictures.

    So are other formats with the extension of TIFF, and without the package tifffile every TIFF.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in TIFF or find_spec("tifffile") is None:
        return suffix == ".npy"
    with reading(path, DAMAGED):
        with open_file(path) as file:
            if file.read(4) not in TIFF_STARTS:
                return False
        with _import_tifffile().TiffFile(path) as tiff:
            page = tiff.pages[0]
            return page.dtype not in (np.uint8, np.bool_) or len(page.shape) > 3 or page.samplesperpixel not in (1, 3, 4)


def is_deep_rgba(path: StrPath) -> bool:
    """Return True for TIFF with 16-bit RGB and alpha, whose fourth channel is no colour."""
    with reading(path, DAMAGED), _import_tifffile().TiffFile(path) as file:
        page = file.pages[0]
        return page.dtype == np.uint16 and page.photometric.name == "RGB" and page.extrasamples == (UNASSOCIATED_ALPHA,)


def open_array(path: StrPath) -> NDArray[Any]:
    """Return the array of a file, memory-mapped for ``.npy`` and uncompressed TIFF."""
    array: NDArray[Any]
    refuse_pipe(path)
    with reading(path, DAMAGED):
        if Path(path).suffix.lower() not in TIFF:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with _import_tifffile().TiffFile(path) as file:
                series = file.series[0]
                array = _decode(series, path) if series.dataoffset is None else _import_tifffile().memmap(path, mode="r")
            if series.axes.endswith("SYX") and array.ndim == 3:
                array = np.moveaxis(array, 0, -1)
    if array.dtype.name not in KINDS or array.ndim not in (2, 3) or not array.size:
        content = f"{array.dtype} of shape {array.shape}"
        raise PictureError(f"{path} contains {content}; expected (h, w) or (h, w, channels) of {', '.join(KINDS)}")
    return array


def _decode(series: Any, path: StrPath) -> NDArray[Any]:
    try:
        return series.asarray()
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        raise PictureError(f"{path} is compressed; run: pip install imagecodecs, or save it without compression") from error


def _import_tifffile() -> Any:
    with requires("tiff"):
        import tifffile
    return tifffile


@contextmanager
def created_array(path: StrPath, shape: tuple[int, ...], kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array to fill. It replaces the ``.npy`` or TIFF file ``path`` at the end of the ``with`` block."""
    suffix = Path(path).suffix.lower()
    if suffix not in ARRAYS:
        raise PictureError(f"{path} cannot hold {kind} of shape {shape}; use one of {', '.join(ARRAYS)}")
    with created(path) as temporary:
        if suffix == ".npy":
            array: Any = np.lib.format.open_memmap(temporary, "w+", kind, shape)
        else:
            photometric = "rgb" if shape[2:] in ((3,), (4,)) else "minisblack"
            array = _import_tifffile().memmap(temporary, shape=shape, dtype=kind, photometric=photometric, bigtiff=True)
        yield array
        array.flush()
