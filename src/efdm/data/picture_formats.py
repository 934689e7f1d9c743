"""Picture formats: what can be read with the installed packages, and what can be written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from PIL import Image, TiffImagePlugin, WebPImagePlugin  # noqa: F401 - imported to register their formats


class Plugin(NamedTuple):
    """A picture format that only some installations can read."""

    format: str  # name in Pillow
    requires: str  # module whose presence shows that the format is supported
    module: str  # registers the format when it is imported
    package: str  # to install


HEIF = Plugin("HEIF", "pillow_heif", "pillow_heif.HeifImagePlugin", "pillow-heif")
PLUGINS = {
    ".avif": Plugin("AVIF", "PIL._avif", "PIL.AvifImagePlugin", "pillow>=11.3"), ".heic": HEIF, ".heif": HEIF, ".hif": HEIF,
    ".jxl": Plugin("JXL", "pillow_jxl", "pillow_jxl", "pillow-jxl-plugin"),
}  # fmt: skip
INSTALLED = {extension: plugin for extension, plugin in PLUGINS.items() if find_spec(plugin.requires)}
# names in Pillow; some of its other formats start external programs
READERS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "PPM", "BMP", *sorted({plugin.format for plugin in INSTALLED.values()}))
READABLE = (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp", *INSTALLED)
# extension -> name in Pillow
WRITABLE = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".bmp": "BMP",
    **({".avif": "AVIF"} if ".avif" in INSTALLED else {}),
}  # fmt: skip
WITHOUT_ALPHA = ("JPEG", "BMP")
# formats with a quality, in full colour resolution, because edges in stylized pictures are often edges of colour only
LOSSY: dict[str, dict[str, Any]] = {"JPEG": {"subsampling": 0}, "WEBP": {}, "AVIF": {"subsampling": "4:4:4"}}
LOSSLESS = {"compression": "tiff_lzw"}  # PNG and BMP have no such option


def find_reader(head: bytes) -> Callable[..., Image.Image] | None:
    """Return Pillow's reader for a file that starts with these bytes, or None if no reader accepts it."""
    _register_formats()
    return next((reader for reader, accept in map(Image.OPEN.__getitem__, READERS) if accept and accept(head)), None)


@functools.cache
def _register_formats() -> None:
    Image.preinit()  # Image.open is avoided, because its pixel limit is global
    for module in {plugin.module for plugin in INSTALLED.values()}:
        import_module(module)
