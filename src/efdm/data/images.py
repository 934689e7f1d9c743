"""Single pictures: reading, writing and resizing."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from efdm.data.ffmpeg import DEEP, decode_png16, encode16, is_png16
from efdm.data.picture_formats import INSTALLED, LOSSLESS, LOSSY, PLUGINS, WITHOUT_ALPHA, WRITABLE, find_reader
from efdm.data.profiles import Array, convert_to_srgb
from efdm.errors import DISK_FULL, MissingExtraError, SettingError, describe_os_error
from efdm.files import atomic_path
from efdm.ops.choices import check_choice

Depth = Literal["8", "16"]
StrPath = str | os.PathLike[str]

LEVELS: dict[str, int] = {"8": 255, "16": 65535}
MAX_PIXELS = 200_000_000


class PictureError(SettingError):
    """A picture cannot be read or written. The message names the file and what to try."""


class DiskFullError(PictureError):
    """A file cannot be written because the disk or the quota is full, so other files cannot be written either."""


@dataclass(frozen=True)
class Picture:
    """``rgb`` ``(3, h, w)`` and ``alpha`` ``(1, h, w)``, float32 in [0, 1], and the bits per channel of the file."""

    rgb: Tensor
    alpha: Tensor | None = None
    depth: Depth = "8"

    def __repr__(self) -> str:
        height, width = self.rgb.shape[-2:]
        return f"Picture({height} x {width}, {self.depth} bits{'' if self.alpha is None else ', alpha'})"

    def save(self, path: StrPath, *, quality: int = 95) -> None:
        """Write the picture in the format of the file's extension, as `write_picture` does."""
        write_picture(path, self.rgb, alpha=self.alpha, depth=self.depth, quality=quality)

    def to_pil(self) -> Image.Image:
        """Return an 8-bit PIL image, with mode RGBA if the picture has an alpha channel and RGB otherwise."""
        return Image.fromarray(to_pixels(self.rgb, self.alpha, "8"))


def read_picture(path: StrPath, *, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read a picture as sRGB, with its EXIF orientation and colour profile applied. For an animation, read the first frame.

    PNG and gray files keep 16 bits per channel. Other 16-bit colour, and 16 bits with a profile other than sRGB, are
    reduced to 8. A picture with more than ``max_pixels`` pixels raises an error before it is decoded, because even a small
    file can decode to a picture that exhausts the memory.
    """
    with reading(path), open_file(path) as file:
        return to_picture(decode(file, str(path), max_pixels=max_pixels))


def open_file(path: StrPath) -> BinaryIO:
    """Return a file opened for reading, unless it is a named pipe."""
    refuse_pipe(path)
    return open(path, "rb")


def refuse_pipe(path: StrPath) -> None:
    """Raise PictureError for a named pipe, because opening it could wait forever."""
    if Path(path).is_fifo():
        raise PictureError(f"{path} is a pipe; expected a file")


def from_image(image: Image.Image) -> Picture:
    """Return a PIL image as a `Picture`, in the same way as a file. (Pillow itself reduces 16-bit colour to 8.)"""
    image.load()
    return to_picture(_apply_metadata(_pixels_of(image), image))


def read_mask(path: StrPath) -> Tensor:
    """Read a mask ``(h, w)`` in [0, 1], as `to_mask` does."""
    return to_mask(read_picture(path), str(path))


def to_mask(picture: Picture, name: str) -> Tensor:
    """Return the brightness of a picture, times its alpha, as a mask ``(h, w)`` in [0, 1]. A black mask raises an error."""
    mask = picture.rgb.mean(dim=0) * (1 if picture.alpha is None else picture.alpha[0])
    if mask.max() < 2 / 255:  # a file of labels 0 and 1 looks black
        raise PictureError(f"{name} selects nothing; the selected pixels of a mask must be white (255, not 1)")
    return mask


def file_error(error: Exception, path: StrPath, kind: type[PictureError] = PictureError) -> PictureError:
    """Return a `PictureError` that says why ``path`` cannot be read or written, and what to try."""
    full = getattr(error, "errno", None) in DISK_FULL
    return (DiskFullError if full else kind)(describe_os_error(error, path))


@contextmanager
def reading(
    name: StrPath, problem: str = "is cut short or damaged", kind: type[PictureError] = PictureError
) -> Iterator[None]:
    """Convert errors in the ``with`` block to ``kind``. Decoders raise many exception types for damaged files."""
    try:
        yield
    except (PictureError, MissingExtraError):
        raise
    except MemoryError as error:
        raise kind(f"{name} does not fit into memory; make it smaller") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise file_error(error, name, kind) from error
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise kind(f"{name} {problem} ({reason}); copy or download it again") from error


def decode(file: BinaryIO, name: str, *, max_pixels: int = MAX_PIXELS, near: int | None = None) -> Array:
    """Return the pixels ``(h, w, 3 or 4)`` of an open file, as uint8 or uint16.

    With ``near``, a JPEG may be decoded at a fraction of its size, with a short side of at least ``2 * near``.
    """
    with reading(name):
        file.seek(0)  # the file may have just been written or read
        head = file.read(32)
        if isinstance(head, str):
            raise PictureError(f"{name} is opened as text; open it in binary mode, 'rb'")
        if not head:
            raise PictureError(f"{name} is empty; copy or download it again")
        reader = find_reader(head)
        if reader is None:
            plugin = PLUGINS.get(Path(name).suffix.lower())
            remedy = f"pip install '{plugin.package}', or " if plugin and plugin not in INSTALLED.values() else ""
            message = f"{name} is not a picture in a supported format"
            raise PictureError(f"{message}; {remedy}save it as PNG, JPEG, WebP, TIFF, BMP or GIF")
        file.seek(0)
        try:
            image = reader(file, name)
        except SyntaxError as error:  # Pillow has no mode for the pixels, such as colours of 32-bit floats
            if "pixel mode" not in str(error):
                raise
            raise _unsupported(name, "unsupported pixels") from error
        width, height = image.size
        if width * height > max_pixels:
            raise PictureError(f"{name} has {width} x {height} pixels, at most {max_pixels} are allowed; make it smaller")
        if near is not None:
            image.draft(None, (2 * near, 2 * near))  # has an effect on JPEG only
        image.load()
        if is_png16(head):
            file.seek(0)
            return _apply_metadata(decode_png16(file.read()), image)
        return _apply_metadata(_pixels_of(image), image)


def to_picture(pixels: Array) -> Picture:
    """Return pixels ``(h, w, 3 or 4)`` of uint8 or uint16 as a `Picture`."""
    depth: Depth = "16" if pixels.dtype == np.uint16 else "8"
    values = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)) / LEVELS[depth]
    return Picture(values[:3], values[3:] if len(values) == 4 else None, depth)


def _pixels_of(image: Image.Image) -> Array:
    if image.mode.startswith("I") or image.mode == "F":
        wide = np.asarray(image)
        if image.mode == "F" or wide.min() < 0 or wide.max() > 65535:
            raise _unsupported(getattr(image, "filename", "picture"), "32 bits per channel")
        return np.repeat(wide.astype(np.uint16)[..., None], 3, axis=2)
    return np.asarray(image.convert("RGBA" if image.has_transparency_data else "RGB"))


def _unsupported(name: str, content: str) -> PictureError:
    missing = Path(name).suffix.lower() in (".tif", ".tiff") and find_spec("tifffile") is None
    remedy = ', or match its colours after pip install "efdm[tiff]"' if missing else ""
    return PictureError(f"{name} has {content}; save it with 8 or 16 bits per channel{remedy}")


# EXIF orientation -> (transpose first, then step along rows and columns)
ORIENTATIONS: dict[int, tuple[bool, int, int]] = {
    2: (False, 1, -1), 3: (False, -1, -1), 4: (False, -1, 1),
    5: (True, 1, 1), 6: (True, 1, -1), 7: (True, -1, -1), 8: (True, -1, 1),
}  # fmt: skip


def _apply_metadata(pixels: Array, image: Image.Image) -> Array:
    """Return the pixels with the colour profile and the orientation of the file applied."""
    pixels, orientation = convert_to_srgb(pixels, image), 1
    with suppress(Exception):  # damaged EXIF data
        orientation = image.getexif().get(0x0112, 1)  # after loading: Pillow itself rotates TIFF and drops the tag
    transpose, rows, columns = ORIENTATIONS.get(orientation, (False, 1, 1))
    return (pixels.transpose(1, 0, 2) if transpose else pixels)[::rows, ::columns]


def write_picture(path: StrPath, rgb: Tensor, *, alpha: Tensor | None = None, depth: Depth = "8", quality: int = 95) -> None:
    """Write ``rgb`` ``(3, h, w)`` and ``alpha`` ``(1, h, w)`` in [0, 1], in the format of the file's extension.

    Missing folders are created, and the file is replaced atomically. JPEG and BMP have no alpha, so the picture is
    composited over white. PNG and TIFF store 16 bits. Values outside [0, 1] are clamped; NaN raises `ValueError`.
    """
    write_bytes(path, encode_picture(path, rgb, alpha=alpha, depth=depth, quality=quality))


def encode_picture(
    path: StrPath, rgb: Tensor, *, alpha: Tensor | None = None, depth: Depth = "8", quality: int = 95
) -> bytes:
    """Return the bytes that `write_picture` writes to ``path``."""
    name = WRITABLE.get(Path(path).suffix.lower())
    if name is None:
        raise PictureError(f"{path} has an extension that cannot be written; use one of {', '.join(WRITABLE)}")
    check_choice("depth", depth, LEVELS)
    if not 1 <= quality <= 100:
        raise ValueError(f"quality must be from 1 to 100, got {quality}")
    if rgb.ndim != 3 or rgb.shape[0] != 3 or rgb.numel() == 0:
        raise ValueError(f"rgb has shape {tuple(rgb.shape)}, expected (3, h, w); write the pictures of a batch one by one")
    if alpha is not None and alpha.shape != (1, *rgb.shape[1:]):
        raise ValueError(f"alpha has shape {tuple(alpha.shape)}, expected {(1, *rgb.shape[1:])}")
    if alpha is not None and name in WITHOUT_ALPHA:
        rgb, alpha = on_white(rgb, alpha), None
    deep = depth == "16" and name in DEEP
    pixels = to_pixels(rgb, alpha, "16" if deep else "8")
    out = io.BytesIO()
    try:
        if deep:
            return encode16(pixels, name)
        options = {"quality": quality, **LOSSY[name]} if name in LOSSY else LOSSLESS
        Image.fromarray(pixels).save(out, name, **options)
        return out.getvalue()
    except (OSError, ValueError) as error:  # such as a size that the format does not support
        raise PictureError(f"{path} cannot be written as {name} ({error}); try .png") from error


def write_bytes(path: StrPath, data: bytes) -> None:
    """Write a file atomically, creating missing folders."""
    with created(path) as temporary, open(temporary, "xb") as file:
        file.write(data)


@contextmanager
def created(path: StrPath, kind: type[PictureError] = PictureError) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` as in `atomic_path`. Create missing folders and explain errors."""
    target = Path(os.path.realpath(path))  # create the folder of the file that a link points to
    try:
        if target.is_dir():
            raise IsADirectoryError
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(target) as temporary:
            yield temporary
    except OSError as error:
        raise file_error(error, path, kind) from error


def on_white(rgb: Tensor, alpha: Tensor) -> Tensor:
    """Return ``rgb`` composited over white; both tensors are float in [0, 1]."""
    alpha = alpha.to(rgb).clamp(0, 1)
    return rgb * alpha + (1 - alpha)


def to_uint8(rgb: Tensor) -> Tensor:
    """Return uint8 unchanged, and floats in [0, 1] clamped and rounded to 0..255."""
    return rgb if rgb.dtype == torch.uint8 else (rgb.detach().float().clamp(0, 1) * 255).round().to(torch.uint8)


def to_pixels(rgb: Tensor, alpha: Tensor | None, depth: Depth) -> Array:
    """Return the pixels ``(h, w, 3 or 4)`` as integers, rounded to nearest."""
    if not rgb.is_floating_point():
        raise ValueError(f"rgb is {rgb.dtype}, expected floats in [0, 1]; divide by 255 first")
    values = (rgb if alpha is None else torch.cat([rgb, alpha.to(rgb)])).detach().to("cpu", torch.float32)
    if values.isnan().any():
        raise ValueError("the picture contains NaN; check the preceding computation for a division by zero or an overflow")
    whole = (values.clamp(0, 1) * LEVELS[depth]).round().permute(1, 2, 0).contiguous().numpy()
    return whole.astype(np.uint16 if depth == "16" else np.uint8)


def resize(rgb: Tensor, size: Sequence[int]) -> Tensor:
    """Resize ``(..., h, w)`` to ``size`` (height, width), bicubic with anti-aliasing.

    Floats are clamped to [0, 1], because bicubic interpolation overshoots at edges, and pass gradients. uint8 stays uint8.
    """
    if min(size) < 1:
        raise ValueError(f"size is {tuple(size)}; height and width must be at least 1")
    if tuple(rgb.shape[-2:]) == tuple(size):
        return rgb
    batch = rgb.reshape(-1, *rgb.shape[-3:])
    if rgb.dtype == torch.uint8 and rgb.device.type != "cpu":  # torch resizes uint8 on the CPU only
        return to_uint8(resize(rgb.float() / 255, size))
    out = F.interpolate(batch, size=tuple(size), mode="bicubic", antialias=True, align_corners=False)
    return (out if rgb.dtype == torch.uint8 else out.clamp(0, 1)).reshape(*rgb.shape[:-2], *size)


def centre_crop(image: Tensor, height: int = 1, width: int = 1) -> Tensor:
    """Return the largest part at the centre of ``(..., h, w)`` with the aspect ratio ``height : width``, by default 1."""
    tall, wide = image.shape[-2:]
    rows, columns = min(tall, max(1, round(wide * height / width))), min(wide, max(1, round(tall * width / height)))
    top, left = (tall - rows) // 2, (wide - columns) // 2
    return image[..., top : top + rows, left : left + columns]


def short_side_size(height: int, width: int, short: int) -> tuple[int, int]:
    """Return the size (height, width) with this short side and, rounded, the same aspect ratio."""
    least = min(height, width)
    return (height * short * 2 + least) // (2 * least), (width * short * 2 + least) // (2 * least)


def resize_short_side(rgb: Tensor, short: int) -> Tensor:
    """Resize ``(..., h, w)`` so that its shorter side is ``short``, keeping the aspect ratio; see `resize`."""
    return resize(rgb, short_side_size(rgb.shape[-2], rgb.shape[-1], short))
