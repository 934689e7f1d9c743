"""A bounded cache of prepared styles."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from efdm.data import read_picture
from efdm.data.images import MAX_PIXELS
from efdm.models.weights import checksum
from efdm.style.look import Look, join_looks
from efdm.style.pictures import Size
from efdm.style.stylizer import Stylizer

MAX_BYTES = 512 * 2**20


class LookCache:
    """Prepared style files of any number of stylizers, at most ``max_bytes`` in all, the most recently used ones.

    A style is identified by the contents of its file. The cache may be used by several threads.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._looks: OrderedDict[tuple[Stylizer, str, Size], Look] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._looks)

    def prepare(
        self,
        stylizer: Stylizer,
        styles: Sequence[Path],
        *,
        weights: Sequence[float] | None = None,
        size: Size = "auto",
        max_pixels: int = MAX_PIXELS,
    ) -> Look:
        """Return the style files as one look, as `Stylizer.prepare` does. ``max_pixels`` limits the size of a file."""
        return join_looks([self._prepare(stylizer, style, size, max_pixels) for style in styles], weights)

    def _prepare(self, stylizer: Stylizer, style: Path, size: Size, max_pixels: int) -> Look:
        key = (stylizer, checksum(style), size)
        with self._lock:
            look = self._looks.get(key)
            if look is not None:
                self._looks.move_to_end(key)
        if look is None:
            look = stylizer.prepare(read_picture(style, max_pixels=max_pixels), size=size)
            self._store(key, look)
        return look.copy()  # a prepared style keeps the values that it resampled for its last content

    def _store(self, key: tuple[Stylizer, str, Size], look: Look) -> None:
        with self._lock:
            if key in self._looks:  # prepared by another thread meanwhile
                return
            self._looks[key] = look
            self.bytes += _bytes(look)
            while self.bytes > self.max_bytes:
                self.bytes -= _bytes(self._looks.popitem(last=False)[1])


def _bytes(look: Look) -> int:
    # each stage holds its values twice, sorted and in their places
    return sum(x.nbytes for x in look.pictures) + 2 * sum(part.values.nbytes for parts in look.features for part in parts)
