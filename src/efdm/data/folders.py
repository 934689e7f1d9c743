"""Many pictures: what lies in a folder or a zip."""

from __future__ import annotations

import functools
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from efdm.data.images import (
    MAX_PIXELS,
    READABLE,
    Picture,
    PictureError,
    StrPath,
    decode,
    read_error,
    to_picture,
)

MAX_MEMBER_BYTES = 512 * 2**20  # of one picture in a zip, unpacked


@dataclass(frozen=True)
class Source:
    """A picture that can be read: a file, or a member of a zip.

    ``name`` is relative to what was searched. ``stem`` is the name without extension, made safe and unique among its
    companions, folders kept: write to ``out / (stem + ".png")``.
    """

    name: str
    stem: str
    path: Path
    member: str | None = None

    def open(self) -> BinaryIO:
        try:
            return open(self.path, "rb") if self.member is None else io.BytesIO(_unpacked(self.path, self.member))
        except OSError as error:
            raise read_error(error, self.path) from error

    def read(self, *, max_pixels: int = MAX_PIXELS) -> Picture:
        try:
            with self.open() as file:
                return to_picture(decode(file, self.name, max_pixels=max_pixels))
        except OSError as error:
            raise read_error(error, self.path) from error


# --- finding ---------------------------------------------------------------------------------------------------------


def find_pictures(source: StrPath) -> list[Source]:
    """The pictures of a file, a folder (with all below it) or a zip, sorted by name; hidden files are left out.

    In a folder or zip, pictures are known by their extension; a single file is taken whatever it is called.
    """
    path = Path(source)
    if not path.is_dir() and path.suffix.lower() != ".zip":
        if not path.exists():
            raise read_error(FileNotFoundError(), path)
        return [Source(path.name, _safe(path.name), path)]
    members = _members(path)
    found, stems = [], set[str]()
    for name, where, member in (m for m in members if m[0].lower().endswith(READABLE)):
        stem = wanted = _safe(name)
        count = 1
        while stem.lower() in stems:  # photo.jpg beside photo.png; Photo beside photo is one file on some systems
            count += 1
            stem = f"{wanted}-{count}"
        stems.add(stem.lower())
        found.append(Source(name, stem, where, member))
    if not found:
        zips = [name for name, *_ in members if name.lower().endswith(".zip")]
        what = (
            f"give its zips themselves, such as {zips[0]}"
            if zips
            else f"put files into it that end in {', '.join(READABLE)}"
        )
        raise PictureError(f"{path} holds no pictures; {what}")
    return found


def names_in(source: StrPath) -> list[str]:
    """What a folder (with all below it) or a zip holds, hidden files left out; of a single file nothing."""
    path = Path(source)
    return [name for name, *_ in _members(path)] if path.is_dir() or path.suffix.lower() == ".zip" else []


def _members(path: Path) -> list[tuple[str, Path, str | None]]:
    """Of a folder or zip, sorted by name: the name, the file, and the member if it is a zip."""
    members: list[tuple[str, Path, str | None]]
    if path.is_dir():
        members = [(name, path / name, None) for name in _below(path)]
    else:
        members = [(name.replace("\\", "/"), path, name) for name in _archive_names(path)]
    return sorted(member for member in members if not _is_hidden(member[0]))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)


def _safe(name: str) -> str:
    """The name without extension and without anything that leads elsewhere or that some system forbids."""
    parts = PurePosixPath(name).with_suffix("").parts
    clean = (re.sub(r'[\x00-\x1f<>:"|?*\\/]', "_", part) for part in parts if part not in ("/", ".", ".."))
    return "/".join(clean) or "picture"


def _below(folder: Path) -> Iterable[str]:
    seen = set[str]()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:  # a link to a folder above would lead round in circles
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(here, file).relative_to(folder).as_posix() for file in files)


# --- zip -------------------------------------------------------------------------------------------------------------


def _archive_names(path: Path) -> set[str]:
    try:
        return {info.filename for info in _archive(path).infolist() if not info.is_dir()}
    except OSError as error:
        raise read_error(error, path) from error


def _archive(path: Path) -> zipfile.ZipFile:
    # one handle for a file as it is now, and never shared with a forked process, which would move its position
    return _open_archive(path, os.stat(path).st_mtime_ns, os.getpid())


@functools.lru_cache(maxsize=8)
def _open_archive(path: Path, changed: int, process: int) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise PictureError(f"{path} is not a zip file or is cut short ({error}); copy or download it again") from error


def _unpacked(path: Path, member: str) -> bytes:
    archive, name = _archive(path), f"{path}: {member}"
    try:
        info = archive.getinfo(member)
    except KeyError as error:
        raise PictureError(f"{name} is not in the zip any more; search it again") from error
    if info.file_size > MAX_MEMBER_BYTES:
        raise PictureError(
            f"{name} unpacks to {info.file_size} bytes, more than {MAX_MEMBER_BYTES}; unpack it yourself first"
        )
    if info.flag_bits & 1:
        raise PictureError(f"{name} is encrypted; unpack the zip yourself first")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # the others unpack without a limit
        raise PictureError(f"{name} is packed in an unusual way; pack the zip again with deflate")
    try:
        with archive.open(info) as file:
            return file.read(info.file_size)  # the limit holds even if the zip lies about the size
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise PictureError(f"{name} is damaged ({error}); copy or download the zip again") from error
