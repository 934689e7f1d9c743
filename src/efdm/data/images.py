"""Single pictures: files to tensors and back, and their sizes."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from torch import Tensor

from efdm.data import png16
from efdm.data.profiles import managed
from efdm.files import atomic_write

Depth = Literal["8", "16"]
Array = NDArray[Any]  # (h, w, 3 or 4) of uint8 or uint16
StrPath = str | os.PathLike[str]

LEVELS: dict[str, int] = {"8": 255, "16": 65535}
MAX_PIXELS = 200_000_000

# How a file begins, and who opens it. Not Image.open: its limit on pixels is global, and it knows formats that start
# other programs.
OPENERS: tuple[tuple[re.Pattern[bytes], Callable[..., Image.Image]], ...] = (
    (re.compile(re.escape(png16.SIGNATURE)), PngImagePlugin.PngImageFile),
    (re.compile(rb"\xff\xd8\xff"), JpegImagePlugin.jpeg_factory),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), WebPImagePlugin.WebPImageFile),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), TiffImagePlugin.TiffImageFile),
    (re.compile(rb"GIF8[79]a"), GifImagePlugin.GifImageFile),
    (re.compile(rb"P[1-6]\s"), PpmImagePlugin.PpmImageFile),
    (re.compile(rb"BM"), BmpImagePlugin.BmpImageFile),
)
READABLE = (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Kind:
    """A format to write: what becomes of alpha, whether values are changed to save space, and what else Pillow is told."""

    format: str
    alpha: Literal["kept", "on white"] = "kept"
    values: Literal["exact", "lossy"] = "exact"
    options: dict[str, Any] = field(default_factory=dict)


JPEG = Kind(
    "JPEG", "on white", "lossy", {"subsampling": 0}
)  # full colour resolution: stylised edges are often edges of colour
TIFF = Kind("TIFF", options={"compression": "tiff_lzw"})
WRITABLE: dict[str, Kind] = {
    ".png": Kind("PNG"),
    ".jpg": JPEG,
    ".jpeg": JPEG,
    ".webp": Kind("WEBP", values="lossy"),
    ".tif": TIFF,
    ".tiff": TIFF,
    ".bmp": Kind("BMP", "on white"),
}


class PictureError(ValueError):
    """A picture that cannot be read or written: one sentence for the user, with the file and what to try."""


@dataclass(frozen=True)
class Picture:
    """``rgb`` ``(3, h, w)`` and ``alpha`` ``(1, h, w)``, float32 in [0, 1], and the bits a channel the file had."""

    rgb: Tensor
    alpha: Tensor | None = None
    depth: Depth = "8"

    def save(self, path: StrPath, *, quality: int = 95) -> None:
        """Write the picture in the format of the file's extension, as `write_picture` does."""
        write_picture(path, self.rgb, alpha=self.alpha, depth=self.depth, quality=quality)

    def to_pil(self) -> Image.Image:
        """Return an 8-bit PIL image, with mode RGBA if the picture has an alpha channel and RGB otherwise."""
        values = self.rgb if self.alpha is None else torch.cat([self.rgb, self.alpha.to(self.rgb)])
        return Image.fromarray(_pixels(values, "8", "to_pil"))


# --- reading ---------------------------------------------------------------------------------------------------------


def read_picture(path: StrPath, *, max_pixels: int = MAX_PIXELS) -> Picture:
    """Any picture as sRGB, upright: EXIF orientation and a colour profile are applied, of an animation the first frame.

    PNG and gray files keep 16 bits. Other 16-bit colour, and 16 bits with a profile other than sRGB, pass through 8.
    More than ``max_pixels`` are refused before they are decoded: a small file can hold a picture that fills the memory.
    """
    try:
        with open(path, "rb") as file:
            return to_picture(decode(file, str(path), max_pixels=max_pixels))
    except OSError as error:
        raise read_error(error, path) from error


def from_image(image: Image.Image) -> Picture:
    """An image that Pillow has opened or made, as if it came from a file. (Pillow itself brings 16-bit colour down to 8.)"""
    image.load()
    return to_picture(_upright(managed(_array(image, None), image), image))


def read_mask(path: StrPath, *, max_pixels: int = MAX_PIXELS) -> Tensor:
    """``(h, w)`` of bool: what is white, or at least half as bright, is selected; what is transparent is not."""
    picture = read_picture(path, max_pixels=max_pixels)
    bright = picture.rgb.mean(dim=0)
    return (bright if picture.alpha is None else bright * picture.alpha[0]) >= 0.5


def read_error(error: OSError, path: StrPath, one: str = "picture") -> PictureError:
    """Why the system does not let us read a file, of which ``one`` was expected, as a sentence."""
    sentences = {
        FileNotFoundError: "does not exist; check the name",
        NotADirectoryError: "does not exist; check the name",
        IsADirectoryError: f"is a folder; give one {one}",
        PermissionError: "may not be read by you; change its permissions or copy it",
    }
    what = sentences.get(type(error), f"could not be read ({error.strerror or error}); copy it and try the copy")
    return PictureError(f"{path} {what}")


def decode(file: BinaryIO, name: str, *, max_pixels: int = MAX_PIXELS, near: int | None = None) -> Array:
    """The pixels ``(h, w, 3 or 4)`` of an open file, in uint8 or uint16.

    With ``near``, a JPEG may be decoded at a fraction of its size, its short side still at least twice ``near``.
    """
    head = file.read(16)
    if not head:
        raise PictureError(f"{name} is empty; copy or download it again")
    opener = next((opener for begins, opener in OPENERS if begins.match(head)), None)
    if opener is None:
        raise PictureError(f"{name} is not a picture of a known kind; save it as PNG, JPEG, WebP, TIFF, BMP or GIF")
    file.seek(0)
    try:
        image = opener(file, name)
        width, height = image.size
        if width * height > max_pixels:
            raise PictureError(
                f"{name} has {width} x {height} pixels, more than the {max_pixels} allowed; make a smaller copy of it first"
            )
        if near is not None:
            image.draft(None, (2 * near, 2 * near))  # only the JPEG reader does anything here
        image.load()
        return _upright(managed(_array(image, file), image), image)
    except PictureError:
        raise
    except MemoryError as error:
        raise PictureError(f"{name} does not fit into memory; make it smaller") from error
    except Exception as error:  # a damaged file can raise nearly anything, and in words that help nobody
        raise PictureError(f"{name} is cut short or damaged; copy or download it again") from error


def to_picture(pixels: Array) -> Picture:
    depth: Depth = "16" if pixels.dtype == np.uint16 else "8"
    values = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)) / LEVELS[depth]
    return Picture(values[:3], values[3:] if len(values) == 4 else None, depth)


def _array(image: Image.Image, file: BinaryIO | None) -> Array:
    if file is not None and isinstance(image, PngImagePlugin.PngImageFile):
        file.seek(0)
        if png16.is_png16(file.read(32)):
            file.seek(0)
            values = png16.decode(file.read())
            gray = values.shape[2] < 3
            return np.concatenate([values[..., :1]] * 2 + [values], axis=2) if gray else values
    if image.mode.startswith("I"):
        wide = np.asarray(image)
        if wide.min() < 0 or wide.max() > 65535:
            raise PictureError(f"{getattr(image, 'filename', 'picture')} has 32 bits a channel; save it with 8 or 16")
        return np.repeat(wide.astype(np.uint16)[..., None], 3, axis=2)
    if image.mode == "F":
        raise PictureError(f"{getattr(image, 'filename', 'picture')} has 32 bits a channel; save it with 8 or 16")
    return np.asarray(image.convert("RGBA" if image.has_transparency_data else "RGB"))


# EXIF orientation -> (rows and columns exchanged, then rows reversed, columns reversed)
ORIENTATIONS: dict[int, tuple[bool, int, int]] = {
    1: (False, 1, 1),
    2: (False, 1, -1),
    3: (False, -1, -1),
    4: (False, -1, 1),
    5: (True, 1, 1),
    6: (True, 1, -1),
    7: (True, -1, -1),
    8: (True, -1, 1),
}


def _upright(pixels: Array, image: Image.Image) -> Array:
    try:
        orientation = image.getexif().get(0x0112, 1)  # after loading: Pillow turns TIFF itself and drops the tag
    except Exception:
        return pixels
    exchanged, rows, columns = ORIENTATIONS.get(orientation, ORIENTATIONS[1])
    return (pixels.transpose(1, 0, 2) if exchanged else pixels)[::rows, ::columns]


# --- writing ---------------------------------------------------------------------------------------------------------


def write_picture(path: StrPath, rgb: Tensor, *, alpha: Tensor | None = None, depth: Depth = "8", quality: int = 95) -> None:
    """Write ``rgb`` ``(3, h, w)`` in [0, 1], and ``alpha`` ``(1, h, w)``, in the format of the file's extension.

    The file is there as a whole or not at all. JPEG and BMP know no alpha: the picture is laid on white. Only PNG is written
    with 16 bits, other formats with 8 whatever the ``depth``. Values outside [0, 1] are clamped; NaN is an error.
    """
    kind = WRITABLE.get(Path(path).suffix.lower())
    if kind is None:
        raise PictureError(f"{path} has an extension that cannot be written; use one of {', '.join(WRITABLE)}")
    if depth not in LEVELS:
        raise ValueError(f"depth={depth!r} is not one of {', '.join(map(repr, LEVELS))}")
    if not 1 <= quality <= 100:
        raise ValueError(f"quality is {quality}; give a number from 1 to 100")
    if rgb.ndim != 3 or rgb.shape[0] != 3 or rgb.numel() == 0:
        raise ValueError(f"rgb has shape {tuple(rgb.shape)}, expected (3, h, w); write the pictures of a batch one by one")
    if alpha is not None and alpha.shape != (1, *rgb.shape[1:]):
        raise ValueError(f"alpha has shape {tuple(alpha.shape)}, expected {(1, *rgb.shape[1:])}, the size of rgb")
    if alpha is not None and kind.alpha == "on white":
        rgb, alpha = on_white(rgb, alpha), None
    values = rgb if alpha is None else torch.cat([rgb, alpha.to(rgb)])
    written_depth: Depth = depth if kind.format == "PNG" else "8"
    pixels = _pixels(values, written_depth, path)
    try:
        data = png16.encode(pixels) if written_depth == "16" else _encode(pixels, kind, quality)
    except Exception as error:  # such as sizes that a format cannot hold
        raise PictureError(f"{path} could not be written as {kind.format} ({error}); try .png") from error
    write_bytes(path, data)


def write_bytes(path: StrPath, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it; missing folders are made."""
    target = Path(os.path.realpath(path))  # the folder to make is that of the file behind a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as file:
            file.write(data)
    except OSError as error:
        raise write_error(error, path) from error


def write_error(error: OSError, path: StrPath) -> PictureError:
    """What the system says about a place that cannot be written, as a sentence."""
    sentences = {
        PermissionError: "may not be written by you; choose another folder",
        IsADirectoryError: "is a folder; give a file name",
        NotADirectoryError: "lies under something that is not a folder; choose another folder",
        FileExistsError: "lies under something that is not a folder; choose another folder",
    }
    what = sentences.get(type(error), f"could not be written ({error.strerror or error}); choose another folder")
    return PictureError(f"{path} {what}")


def on_white(rgb: Tensor, alpha: Tensor) -> Tensor:
    """``rgb`` seen through ``alpha`` in front of white; both float in [0, 1]."""
    alpha = alpha.to(rgb).clamp(0, 1)
    return rgb * alpha + (1 - alpha)


def _pixels(values: Tensor, depth: Depth, path: StrPath) -> Array:
    """``(h, w, c)`` whole numbers, each the nearest to its value."""
    if not values.is_floating_point():
        raise ValueError(f"rgb is {values.dtype}, expected floats in [0, 1]; divide by 255 first")
    values = values.detach().to("cpu", torch.float32)
    if values.isnan().any():
        raise ValueError(f"the picture for {path} holds NaN; look for a division by zero or an overflow before it")
    whole = (values.clamp(0, 1) * LEVELS[depth]).round().permute(1, 2, 0).contiguous().numpy()
    return whole.astype(np.uint16 if depth == "16" else np.uint8)


def _encode(pixels: Array, kind: Kind, quality: int) -> bytes:
    out = io.BytesIO()
    options = {"quality": quality, **kind.options} if kind.values == "lossy" else kind.options
    Image.fromarray(pixels).save(out, kind.format, **options)
    return out.getvalue()


# --- sizes -----------------------------------------------------------------------------------------------------------


def resize(rgb: Tensor, size: tuple[int, int]) -> Tensor:
    """``(..., h, w)`` to exactly ``size`` (height, width): bicubic, averaging what is made smaller.

    Floats are clamped to [0, 1], since bicubic overshoots at edges; uint8 stays uint8. Gradients flow through floats.
    """
    if min(size) < 1:
        raise ValueError(f"size is {tuple(size)}; height and width must be at least 1")
    if tuple(rgb.shape[-2:]) == tuple(size):
        return rgb
    batch = rgb.reshape(-1, *rgb.shape[-3:])
    if rgb.dtype == torch.uint8 and rgb.device.type != "cpu":  # torch resizes bytes on the CPU only
        return (resize(rgb.float() / 255, size) * 255).round().to(torch.uint8)
    out = F.interpolate(batch, size=tuple(size), mode="bicubic", antialias=True, align_corners=False)
    return (out if rgb.dtype == torch.uint8 else out.clamp(0, 1)).reshape(*rgb.shape[:-2], *size)


def short_side_size(height: int, width: int, short: int) -> tuple[int, int]:
    """The size with this short side and the nearest whole long side."""
    least = min(height, width)
    return (height * short * 2 + least) // (2 * least), (width * short * 2 + least) // (2 * least)


def resize_short_side(rgb: Tensor, short: int) -> Tensor:
    """``(..., h, w)`` with its shorter side made ``short``, in proportion; see `resize`."""
    return resize(rgb, short_side_size(rgb.shape[-2], rgb.shape[-1], short))
