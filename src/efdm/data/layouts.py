"""Domains, classes and splits from folder names and from lists of files."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from efdm.data.folders import Skipped, Source, find_pictures, list_paths, names_in
from efdm.data.images import PictureError, StrPath
from efdm.ops.choices import check_choice
from efdm.text import first_few, plural

Split = float | Mapping[str, Iterable[str]]

SPLITS = ("train", "val", "test")
# A folder between domain and class, as in VLCS and Office-31, and its split. "whole" contains all pictures of a domain, so
# it duplicates the other folders. Pictures without such a folder have the split "".
SPLIT_FOLDERS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "crossval"), "val"),
    "test": "test",
    **dict.fromkeys(("full", "all", "images"), "whole"),
}
TEXT_FILES = ("", ".txt", ".md")  # allowed next to the zips of domains
NO_FILE = Source("", "", Path())  # source of pictures in memory
LAYOUT = "expected domain/class/picture or domain/train/class/picture, below any number of common folders"


@dataclass(frozen=True)
class Item:
    """A picture with its domain and class."""

    name: str
    domain: str
    label: str
    splits: frozenset[str] = frozenset()  # names of its final splits, set by `assign`
    folder: str = ""  # its split by folder or list: a value of `SPLIT_FOLDERS`, or ""
    source: Source = NO_FILE

    @property
    def key(self) -> str:
        return key(f"{self.domain}/{self.label}/{PurePosixPath(self.name).name}")


def key(name: str) -> str:
    """Return a name that is the same in all copies of a data set: without extension, with ``/``, in Unicode form NFC."""
    return unicodedata.normalize("NFC", str(PurePosixPath(name.replace("\\", "/")).with_suffix("")))


def find_items(source: StrPath | Sequence[StrPath]) -> tuple[list[Item], Skipped]:
    """Return all pictures sorted by domain, class and name, and (name, reason) of the few outside that layout."""
    sources = list_paths(source)
    if not sources:
        raise PictureError("no source given; expected a folder, a zip, or a list of them")
    sources = [part for path in sources for part in _zips_of_domains(path) or [path]]
    items, outside = list[Item](), Skipped()
    for path in sources:
        if path.is_file() and path.suffix.lower() != ".zip":
            raise PictureError(f"{path} is neither a folder nor a zip; unpack it if it is an archive; {LAYOUT}")
        pictures = find_pictures(path)
        # a zip of one domain may start with the classes, so its own name is the domain
        only_classes = len(sources) > 1 and all(item.name.count("/") == 1 for item in pictures)
        items += _read_layout(pictures, path, [path.stem] if only_classes else [], outside)
    items = _without_duplicates(items)
    classes = {domain: {i.label for i in items if i.domain == domain} for domain in sorted({i.domain for i in items})}
    if not set.intersection(*classes.values()):
        examples = "; ".join(f"{domain} has {first_few(sorted(labels))}" for domain, labels in list(classes.items())[:3])
        raise PictureError(f"the domains of {sources[0]} have no class in common ({examples}); {LAYOUT}")
    if twice := [name for name, times in Counter(i.name for i in items).items() if times > 1]:
        raise PictureError(f"{plural(len(twice), 'picture')} found twice, {first_few(twice)}; pass each source once")
    return sorted(items, key=lambda i: (i.domain, i.label, i.name)), outside


def _zips_of_domains(folder: Path) -> list[Path]:
    """Return the zips of a folder that contains only zips and text files, otherwise an empty list."""
    _, _, files = next(os.walk(folder), ("", [], []))
    names = names_in(folder) if any(file.lower().endswith(".zip") for file in files) else []
    other = any(PurePosixPath(name).suffix.lower() not in (".zip", *TEXT_FILES) for name in names)
    return [] if other else [folder / name for name in names if name.lower().endswith(".zip")]


def _read_layout(pictures: list[Source], path: Path, before: list[str], outside: Skipped) -> list[Item]:
    """Return the items, with domain and class from the innermost folders. Most pictures must share the outer folders."""
    read: list[tuple[tuple[str, ...], Item | None, Source]] = []
    for source in pictures:
        *outer, file = [*before, *source.name.split("/")]
        split = SPLIT_FOLDERS.get(outer[-2].lower(), "") if len(outer) > 2 else ""
        inner = outer[-3:] if split else outer[-2:]
        item = Item("/".join([*inner, file]), inner[0], inner[-1], folder=split, source=source) if len(inner) > 1 else None
        read.append((tuple(outer[: len(outer) - len(inner)]) if item else ("too few folders",), item, source))
    usual, _ = Counter(outer for outer, _, _ in read).most_common(1)[0]
    items = [item for outer, item, _ in read if outer == usual and item is not None]
    if len(items) < 0.9 * len(pictures):  # many pictures elsewhere indicate another layout
        examples = sorted({outer: source.name for outer, _, source in read}.values())
        raise PictureError(f"{path} holds pictures such as {first_few(examples)}; {LAYOUT}")
    others = [source.name for outer, _, source in read if outer != usual]
    outside += [(name, f"{name} is outside the folders of the other pictures") for name in others]
    return items


def _without_duplicates(items: list[Item]) -> list[Item]:
    """Return each picture once: a "whole" folder is dropped if there is "train", otherwise it replaces the others."""
    folders: dict[str, set[str]] = {}
    for item in items:
        folders.setdefault(item.domain, set()).add(item.folder)
    for domain, splits in folders.items():
        if ("" in splits and len(splits) > 1) or not splits & {"", "train", "whole"}:
            folder_names = ", ".join(f"{domain}/{split or 'class'}" for split in sorted(splits))
            raise PictureError(f"found {folder_names}, but no folder of training pictures only; {LAYOUT}")
    return [i for i in items if ("train" in folders[i.domain]) != (i.folder in ("", "whole"))]


def by_lists(items: Sequence[Item]) -> tuple[Sequence[Item], Skipped]:
    """Apply lists like those of DomainNet: ``clipart_train.txt`` and ``clipart_test.txt`` beside ``clipart``.

    Return the listed items with ``folder`` set to their list, and (name, reason) for pictures that are only listed or only
    stored. Without lists, or if folders already give the splits, return the items unchanged.
    """
    first = {} if any(item.folder for item in items) else {item.domain: item for item in items}
    files = {(domain, split): f"{domain}_{split}.txt" for domain in first for split in ("train", "test")}
    lists = {at: source for at, file in files.items() if (source := _find_beside(first[at[0]].source, file))}
    if not lists:
        return items, []
    if lost := [file for at, file in files.items() if at not in lists]:
        other = next(iter(lists.values()))
        raise PictureError(f"{other.path.parent} has {other.name}, but no {first_few(lost)}; add them or remove all lists")
    keys, labels = {item.key for item in items}, {item.label for item in items}
    splits: dict[str, str] = {}
    skipped: Skipped = []
    for (domain, split), source in lists.items():
        names = {key(name): name for name in read_list(source, domain)}
        if not names.keys() & keys:
            raise PictureError(f"none of the pictures in {source.path} exists; copy {domain} again")
        if both := [name for stem, name in names.items() if stem in splits]:
            raise PictureError(f"both lists of {domain} contain {first_few(both)}; list each picture once")
        splits |= dict.fromkeys(names, split)
        # a missing class folder is not reported
        gone = [n for stem, n in names.items() if stem not in keys and n.split("/")[1] in labels]
        skipped += [(name, f"{name} is in {source.name} but does not exist") for name in gone]
    skipped += [(item.name, f"{item.name} is not in any list") for item in items if item.key not in splits]
    return [replace(item, folder=splits[item.key]) for item in items if item.key in splits], skipped


def _find_beside(picture: Source, file: str) -> Source | None:
    """Return the path of a file next to the folder or the zip of a domain, or None if it does not exist."""
    places = [Source(file, file, picture.path.absolute().parents[2 if picture.member is None else 0] / file)]
    if picture.member is not None:
        places.insert(0, Source(file, file, picture.path, "/".join([*picture.member.split("/")[:-3], file])))
    return next((place for place in places if place.exists()), None)


def read_list(source: Source, domain: str) -> list[str]:
    """Return the names in a list with lines like ``photo/dog/056_0001.jpg 1``."""
    names = [line.rpartition(" ")[0] for line in source.lines()]
    if wrong := [name for name in names if name.count("/") != 2 or not name.startswith(f"{domain}/")]:
        raise PictureError(f"{source.path} has {wrong[0]!r}; expected lines like '{domain}/class/name.jpg 0'")
    return names


def assign(items: Sequence[Item], split: Split, seed: int = 0) -> list[Item]:
    """Return the items with their splits. ``split`` is the share for "val", or lists of names by split."""
    if isinstance(split, Mapping):
        return _assign_lists(items, split)
    if not 0 <= split < 1:
        raise ValueError(f"split must be a share of pictures in [0, 1) or lists of names, got {split}")
    with_val, with_test = ({item.domain for item in items if item.folder == name} for name in ("val", "test"))
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        if item.folder not in ("val", "test") and item.domain not in with_val:
            groups.setdefault((item.domain, item.label), []).append(item)
    val = {item.name for group in groups.values() for item in _draw_share(group, split, seed)}
    out = []
    for item in items:
        own = item.folder if item.folder in ("val", "test") else "val" if item.name in val else "train"
        out.append(replace(item, splits=frozenset({own} if item.domain in with_test else {own, "test"})))
    return out


def _draw_share(group: list[Item], share: float, seed: int) -> list[Item]:
    """Return a share of a class, drawn by hashes of names.

    The result does not depend on the order, the operating system or the file format, and a missing file changes at most one
    picture of the share.
    """
    count = 0 if share == 0 or len(group) < 2 else min(max(1, int(len(group) * share + 0.5)), len(group) - 1)
    return sorted(group, key=lambda i: (sha256(f"{seed}/{i.key}".encode()).digest(), i.name))[:count]


def _assign_lists(items: Sequence[Item], lists: Mapping[str, Iterable[str]]) -> list[Item]:
    for split in lists:
        check_choice("split", split, SPLITS)
    listed = {split: {key(name): name for name in names} for split, names in lists.items()}
    if both := sorted(listed.get("train", {}).keys() & listed.get("val", {}).keys()):
        raise ValueError(f"train and val share {plural(len(both), 'name')}, {first_few(both)}; keep each in one list")
    known = Counter(item.key for item in items)
    for split, names in listed.items():
        if lost := [name for stem, name in names.items() if stem not in known]:
            raise PictureError(f"{plural(len(lost), 'picture')} of the list {split!r} do not exist: {first_few(lost)}")
        if double := [name for stem, name in names.items() if known[stem] > 1]:
            raise PictureError(f"several files match {first_few(double)}; keep one format of each picture")
    listed.setdefault("test", dict.fromkeys(known, ""))
    return [replace(item, splits=frozenset(split for split in listed if item.key in listed[split])) for item in items]
