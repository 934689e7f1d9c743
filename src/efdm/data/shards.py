"""WebDataset shards: tar files whose members with the same key, the name up to the first dot, form a sample."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from efdm.data.folders import MAX_MEMBER_BYTES, is_hidden
from efdm.data.images import Picture, PictureError, StrPath, decode, reading, to_picture
from efdm.data.picture_formats import READABLE
from efdm.files import atomic_write

_KEY = re.compile(r"^((?:.*/)?[^./]+)\.([^/]+)$")  # as the package webdataset splits names


@dataclass(frozen=True)
class Sample:
    """A sample of a shard: its key, and the bytes of its members by extension, such as "jpg" or "json"."""

    key: str
    members: dict[str, bytes]

    def read(self) -> Picture:
        """Return the first picture."""
        for extension, data in self.members.items():
            if f".{extension.lower()}" in READABLE:
                return to_picture(decode(io.BytesIO(data), f"{self.key}.{extension}"))
        raise PictureError(f"{self.key} holds no picture, only {', '.join(self.members)}")


def find_shards(source: StrPath) -> list[Path]:
    """Return a tar file, or the tar files directly in a folder, sorted by name. Other sources have none."""
    path = Path(source)
    if path.is_dir():
        return sorted(p for p in path.glob("*.tar") if not is_hidden(p.name))
    return [path] if path.suffix.lower() == ".tar" else []


def read_shard(path: StrPath) -> Iterator[Sample]:
    """Yield the samples of a shard, one in memory at a time. Raise `PictureError` where the file is damaged."""
    with reading(path), tarfile.open(path, "r:") as archive:
        key, members = "", dict[str, bytes]()
        for info in archive:
            match = _KEY.match(info.name)
            if not info.isfile() or match is None or is_hidden(info.name):
                continue
            if match[1] != key and members:
                yield Sample(key, members)
                members = {}
            if info.size > MAX_MEMBER_BYTES:
                raise PictureError(f"{path}: {info.name} has {info.size} bytes, at most {MAX_MEMBER_BYTES} are allowed")
            key, members[match[2]] = match[1], archive.extractfile(info).read()  # type: ignore[union-attr]
        if members:
            yield Sample(key, members)


@contextmanager
def write_shard(path: StrPath) -> Iterator[Callable[[Sample], None]]:
    """Yield a function that adds a sample to a shard. Equal samples give equal bytes.

    The shard replaces ``path`` at the end of the ``with`` block, or not at all if the block raises.
    """
    with atomic_write(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:

        def add(sample: Sample) -> None:
            for extension, data in sample.members.items():
                info = tarfile.TarInfo(f"{sample.key}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

        yield add
