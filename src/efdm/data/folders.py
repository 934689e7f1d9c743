"""Pictures in folders and zip files."""

from __future__ import annotations

import functools
import io
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from efdm.data.images import Picture, PictureError, StrPath, decode, file_error, open_file, reading, to_picture
from efdm.data.picture_formats import PLUGINS, READABLE
from efdm.text import make_unique, plural

Skipped = list[tuple[str, str]]  # (name, reason)

VIDEOS = (
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv", ".webm", ".wmv",
)  # fmt: skip
HINTS: Mapping[str, str] = {
    "video": "; pass a video by itself",
    **{f"{extension[1:].upper()} picture": f"; pip install '{plugin.package}'" for extension, plugin in PLUGINS.items()},
}
MAX_MEMBER_BYTES = 512 * 2**20  # decompressed size limit of one picture in a zip


def list_paths(paths: StrPath | Sequence[StrPath]) -> list[Path]:
    """Return one or several paths as a list."""
    return [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]


def is_video(paths: Sequence[Path], out: Path) -> bool:
    """Return True for a single video, and if the result is a video or a GIF, for a GIF or a file of unknown kind."""
    suffix, out_suffix = paths[0].suffix.lower(), out.suffix.lower()
    if len(paths) > 1:
        return False
    known = (suffix in READABLE and suffix != ".gif") or _is_container(paths[0])
    return suffix in VIDEOS or (out_suffix in (*VIDEOS, ".gif") and not known)


class NoPicturesError(PictureError):
    """A folder or zip holds no pictures."""


@dataclass(frozen=True)
class Source:
    """A picture that can be read: a file, or a member of a zip.

    ``name`` is relative to the folder or zip. ``stem`` is the name without its extension, safe and unique within the
    folder or zip, so ``out / (stem + ".png")`` can be used as the path of a result.
    """

    name: str
    stem: str
    path: Path
    member: str | None = None

    def __str__(self) -> str:
        """Return the path for messages, as it was given."""
        return str(self.path) if self.member is None else f"{self.path}: {self.member}"

    def open(self) -> BinaryIO:
        with reading(self.path):
            return open_file(self.path) if self.member is None else io.BytesIO(_decompress(self, self.member))

    def lines(self) -> list[str]:
        """Return the lines of a text file that are not empty, without spaces at their ends."""
        with self.open() as file:
            lines = file.read().decode("utf-8-sig", "replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def exists(self) -> bool:
        return self.path.is_file() and (self.member is None or self.member in _archive(self.path).NameToInfo)

    def read(self) -> Picture:
        with self.open() as file:
            return to_picture(decode(file, str(self)))


def without_folders(skipped: Skipped) -> Skipped:
    """Return skipped pictures with the path in each reason replaced by the name, for records."""
    rests = [reason.partition(PurePosixPath(name).name)[2] for name, reason in skipped]
    return [(name, name + rest if rest else reason) for (name, reason), rest in zip(skipped, rests, strict=True)]


def find_pictures(source: StrPath) -> list[Source]:
    """Return the pictures of a file, a folder with its subfolders, or a zip, sorted by name. Hidden files are skipped.

    In a folder or zip, pictures are recognized by their extension. A single file may have any extension.
    """
    return scan_pictures(source)[0]


def scan_pictures(source: StrPath, *, without: StrPath | None = None) -> tuple[list[Source], list[str]]:
    """Return the pictures of a source, as `find_pictures` does, and a note about each kind of file that is skipped.

    ``without`` is a folder inside the source to skip, such as the folder of results.
    """
    path = Path(source)
    if not _is_container(path):
        if not os.path.lexists(path):
            raise file_error(FileNotFoundError(), path)
        if path.exists() and not path.is_file():
            raise PictureError(f"{path} is a pipe or a device; expected a file, a folder or a zip")
        return [Source(path.name, _safe_stem(path.name), path)], []
    skipped = Counter[str]()
    members = _members(path, skipped, without)
    pictures = [member for member in members if member[0].lower().endswith(READABLE)]
    skipped.update(_kind(name) for name, *_ in members if not name.lower().endswith(READABLE))
    notes = [f"{path}: {plural(count, kind)} skipped{HINTS.get(kind, '')}" for kind, count in skipped.items()]
    if not pictures:
        zips = [name for name, *_ in members if name.lower().endswith(".zip")]
        remedy = f"pass its zips themselves, such as {zips[0]}" if zips else f"expected files like {', '.join(READABLE)}"
        details = "".join(f"; {note.removeprefix(f'{path}: ')}" for note in notes)
        raise NoPicturesError(f"{path} holds no pictures; {remedy}{details}")
    stems = make_unique(_safe_stem(name) for name, *_ in pictures)  # photo.jpg and photo.png
    return [Source(name, stem, file, member) for stem, (name, file, member) in zip(stems, pictures, strict=True)], notes


def _kind(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    return "video" if suffix in VIDEOS else f"{suffix[1:].upper()} picture" if suffix in PLUGINS else "other file"


def names_in(source: StrPath) -> list[str]:
    """Return the names of all files in a folder or zip except hidden ones, or an empty list for a single file."""
    path = Path(source)
    return [name for name, *_ in _members(path, Counter())] if _is_container(path) else []


def is_hidden(name: str) -> bool:
    """Return True for names such as ``.DS_Store`` and for anything in a hidden folder or in macOS's ``__MACOSX``."""
    return any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)


def _is_container(path: Path) -> bool:
    return path.is_dir() or (path.suffix.lower() == ".zip" and not path.is_fifo())


def _members(path: Path, skipped: Counter[str], without: StrPath | None = None) -> list[tuple[str, Path, str | None]]:
    """Return (name, file, member of the zip or None) for all visible files of a folder or zip, sorted by name.

    Hidden files, special files, unreadable folders and unsafe paths are counted in ``skipped``.
    """
    if path.is_dir():
        return [(name, path / name, None) for name in sorted(_files_below(path, skipped, without))]
    infos = [info for info in _archive(path).infolist() if not info.is_dir()]
    members = {(info.filename.replace("\\", "/"), path, info.filename) for info in infos}
    outside = {member for member in members if ".." in PurePosixPath(member[0]).parts}
    hidden = {member for member in members - outside if is_hidden(member[0])}
    skipped.update({kind: len(group) for kind, group in (("unsafe path", outside), ("hidden file", hidden)) if group})
    return sorted(members - outside - hidden)


def _safe_stem(name: str) -> str:
    """Return the name without its extension, parent folders (``..``) and characters that some systems forbid."""
    parts = PurePosixPath(name).with_suffix("").parts
    clean = (re.sub(r'[\x00-\x1f<>:"|?*\\/]', "_", part) for part in parts if part not in ("/", ".", ".."))
    return "/".join(clean) or "picture"


def _files_below(folder: Path, skipped: Counter[str], without: StrPath | None) -> Iterator[str]:
    top = os.path.realpath(folder)
    seen = {os.path.realpath(without)} - {top} if without is not None else set[str]()
    below = [""]
    while below:
        prefix = below.pop()
        real = os.path.realpath(folder / prefix)
        if real in seen:  # ``without``, or a link to a parent folder
            continue
        seen.add(real)
        try:
            entries = list(os.scandir(folder / prefix))
        except OSError as error:
            if not prefix:
                raise file_error(error, folder) from error
            skipped["unreadable folder"] += 1
            continue
        for entry in entries:
            if is_hidden(entry.name):
                skipped["hidden file"] += 1
            elif os.path.isdir(entry):  # unlike the methods of ``entry``, False for a link to itself
                below.append(f"{prefix}{entry.name}/")
            elif os.path.isfile(entry) or not os.path.exists(entry):  # reading a broken link reports it
                yield prefix + entry.name
            else:
                skipped["special file"] += 1  # reading a pipe could wait forever


def _archive(path: Path) -> zipfile.ZipFile:
    with reading(path, "is not a zip file or is cut short"):
        # reopened if the file changes; not shared with a forked process, which would move the file position
        return _open_archive(path, os.stat(path).st_mtime_ns, os.getpid())


@functools.lru_cache(maxsize=8)
def _open_archive(path: Path, changed: int, process: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _decompress(source: Source, member: str) -> bytes:
    name, archive = str(source), _archive(source.path)
    with reading(name, "is damaged or encrypted"):
        info = archive.getinfo(member)
        if info.file_size > MAX_MEMBER_BYTES:
            raise PictureError(f"{name} decompresses to {info.file_size} bytes, at most {MAX_MEMBER_BYTES} are allowed")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others ignore the size limit
            raise PictureError(f"{name} has an unsupported compression method; compress the zip with deflate")
        with archive.open(info) as file:
            return file.read(info.file_size)  # a limit even if the zip states a wrong size
