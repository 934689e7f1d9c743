"""Where the pictures of a set of domains lie, and which of them are for training."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from efdm.data.folders import Source, find_pictures, names_in
from efdm.data.images import READABLE, PictureError, StrPath, read_error
from efdm.text import first_few, plural

Split = float | Mapping[str, Iterable[str]]

# A folder between domain and class, as VLCS and Office-31 have it, and what its pictures are for. "whole" holds all of a
# domain: the pictures of the other folders once more. The value "" is said of pictures without such a folder.
SPLIT_FOLDERS: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "crossval": "val",
    "test": "test",
    "full": "whole",
    "all": "whole",
    "images": "whole",
}
SPLITS = ("train", "val", "test")
TEXTS = ("", ".txt", ".md")  # README, lists: what may lie beside zips of domains
LAYOUT = "expected domain/class/picture or domain/train/class/picture, in any number of common outer folders"


@dataclass(frozen=True)
class Item:
    """One picture to read and what its folders, or lists, say. ``folder`` is a value of `SPLIT_FOLDERS`, or ""."""

    name: str
    domain: str
    label: str
    folder: str
    source: Source

    @property
    def key(self) -> str:
        return key(f"{self.domain}/{self.label}/{PurePosixPath(self.name).name}")


def key(name: str) -> str:
    """A name by which copies of a set agree: without extension, and with letters as some systems spell them undone."""
    return unicodedata.normalize("NFC", str(PurePosixPath(name.replace("\\", "/")).with_suffix("")))


def find_items(source: StrPath | Sequence[StrPath]) -> tuple[list[Item], list[tuple[str, str]]]:
    """All pictures in the order of their names, and what lies elsewhere than the others as (name, reason)."""
    sources = [Path(s) for s in ([source] if isinstance(source, str | os.PathLike) else source)]
    if not sources:
        raise PictureError("there is no source; give a folder or a zip, or a list of them")
    sources = [part for path in sources for part in _zips_of_domains(path) or [path]]
    items, outside = [], []
    for path in sources:
        found = find_pictures(path)
        # a zip of one domain may begin with the classes; then its own name says which domain it is
        bare = len(sources) > 1 and all(item.name.count("/") == 1 for item in found)
        here, beside = _read_layout(found, path, [path.stem] if bare else [])
        items += here
        outside += beside
    items = _one_copy(items)
    classes = {domain: {i.label for i in items if i.domain == domain} for domain in sorted({i.domain for i in items})}
    if not set.intersection(*classes.values()):
        one = "; ".join(f"{domain} has {', '.join(sorted(labels)[:3])}" for domain, labels in list(classes.items())[:3])
        raise PictureError(f"the domains of {sources[0]} have no class in common ({one}); {LAYOUT}")
    twice = [name for name, times in Counter(i.name for i in items).items() if times > 1]
    if twice:
        raise PictureError(f"{plural(len(twice), 'picture')} found twice, {first_few(twice)}; give each source once")
    return sorted(items, key=lambda i: (i.domain, i.label, i.name)), outside


def _zips_of_domains(folder: Path) -> list[Path]:
    """The zips of a folder that holds nothing else but text, such as lists; of anything else nothing."""
    _, _, files = next(os.walk(folder), ("", [], []))
    # folders of pictures are large: they are gone through once only
    names = names_in(folder) if any(file.lower().endswith(".zip") for file in files) else []
    other = any(PurePosixPath(name).suffix.lower() not in (".zip", *TEXTS) for name in names)
    return [] if other else [folder / name for name in names if name.lower().endswith(".zip")]


def _read_layout(found: list[Source], path: Path, before: list[str]) -> tuple[list[Item], list[tuple[str, str]]]:
    """Read folders from the inside, so that outer ones do not matter; but all pictures must share those."""
    read: list[tuple[tuple[str, ...], Item | None, Source]] = []
    for source in found:
        *outer, file = [*before, *source.name.split("/")]
        word = SPLIT_FOLDERS.get(outer[-2].lower(), "") if len(outer) > 2 else ""
        inner = outer[-3:] if word else outer[-2:]
        item = Item("/".join([*inner, file]), inner[0], inner[-1], word, source) if len(inner) > 1 else None
        read.append((tuple(outer[: len(outer) - len(inner)]) if item else ("too few folders",), item, source))
    usual, _ = Counter(outer for outer, _, _ in read).most_common(1)[0]
    items = [item for outer, item, _ in read if outer == usual and item is not None]
    others = [source.name for outer, _, source in read if outer != usual]
    if len(items) < 0.9 * len(found):  # a stray picture is left out; more is another layout
        examples = sorted({outer: source.name for outer, _, source in read}.values())
        raise PictureError(f"{path} holds pictures such as {first_few(examples)}; {LAYOUT}")
    return items, [(name, f"{name} lies outside the folders of the other pictures and was left out") for name in others]


def _one_copy(items: list[Item]) -> list[Item]:
    """Leave out the folders that repeat pictures: "whole" beside "train", and "test" beside "whole" alone."""
    folders: dict[str, set[str]] = {}
    for item in items:
        folders.setdefault(item.domain, set()).add(item.folder)
    for domain, words in folders.items():
        if ("" in words and len(words) > 1) or not words & {"", "train", "whole"}:
            had = ", ".join(f"{domain}/{word or 'class'}" for word in sorted(words))
            raise PictureError(f"found {had}, from which no training pictures can be told; {LAYOUT}")
    return [i for i in items if ("train" in folders[i.domain]) != (i.folder in ("", "whole"))]


def empty_folders(items: Sequence[Item]) -> list[str]:
    """Sentences about folders of classes or splits without pictures, which may be copies that failed. Raises for such a
    domain. (Zips are not looked into: most have no entries for folders.)"""
    files = [item for item in items if item.source.member is None]
    classes = {item.source.path.parent for item in files}
    domains = {item.source.path.parents[2 if item.folder else 1] for item in files}
    # what lies beside a source that is itself a domain is none of ours
    roots = {i.source.path.parents[3 if i.folder else 2] for i in files if i.source.name.count("/") > 1}
    full = {parent for folder in classes for parent in (folder, *folder.parents)}

    def hollow(parents: Iterable[Path]) -> list[Path]:
        below = sorted(folder for parent in parents for folder in parent.iterdir() if folder.is_dir())
        return [f for f in below if f not in full and not f.name.startswith(".") and not _any_file(f, READABLE)]

    if lost := [folder for folder in hollow(roots) if not _any_file(folder)]:
        raise PictureError(
            f"there are no pictures in {first_few([str(f) for f in lost])}; copy that domain again, or remove its folder"
        )
    empty = hollow({folder.parent for folder in classes} | domains)
    return [f"{folder} holds no pictures; was it copied as a whole?" for folder in empty]


def _any_file(folder: Path, endings: tuple[str, ...] = ("",)) -> bool:
    return any(path.is_file() and path.name.lower().endswith(endings) for path in folder.rglob("*"))


# --- lists -----------------------------------------------------------------------------------------------------------

LISTED = ("train", "test")  # DomainNet: clipart_train.txt and clipart_test.txt beside the folder or zip of clipart


def by_lists(items: Sequence[Item]) -> tuple[Sequence[Item], list[tuple[str, str]]]:
    """The pictures, each for what a list like DomainNet's says of it, and what is on no list or on a list alone. Where
    there are no lists, or folders say it already, all is as it was."""
    first = {} if any(item.folder for item in items) else {item.domain: item for item in items}
    wanted = {(domain, part): f"{domain}_{part}.txt" for domain in first for part in LISTED}
    inside = {path: set(names_in(path)) for path in {item.source.path for item in first.values() if item.source.member}}
    lists = {at: found for at, file in wanted.items() if (found := _beside(first[at[0]].source, file, inside))}
    if not lists:
        return items, []
    if lost := [file for at, file in wanted.items() if at not in lists]:
        here = next(iter(lists.values()))
        raise PictureError(
            f"{here.path.parent} has {here.name}, but no {first_few(lost)}; put the lists of all domains there, or remove "
            "all of them to hold out a share of each class"
        )
    there, labels = {item.key for item in items}, {item.label for item in items}
    parts: dict[str, str] = {}
    skipped = []
    for (domain, part), source in lists.items():
        names = {key(name): name for name in _read_list(source, domain)}
        if not names.keys() & there:
            raise PictureError(f"none of {plural(len(names), 'picture')} in {source.path} is there; copy {domain} again")
        if both := [name for stem, name in names.items() if stem in parts]:
            raise PictureError(f"both lists of {domain} name {first_few(both)}; keep each picture in one")
        parts |= dict.fromkeys(names, part)
        gone = [n for stem, n in names.items() if stem not in there and n.split("/")[1] in labels]  # not: whole classes
        skipped += [(name, f"{name} is in {source.name} but not there") for name in gone]
    skipped += [(item.name, f"{item.name} is on no list and was left out") for item in items if item.key not in parts]
    return [replace(item, folder=parts[item.key]) for item in items if item.key in parts], skipped


def _beside(picture: Source, file: str, inside: Mapping[Path, set[str]]) -> Source | None:
    """A file beside the folder of a domain, or beside the zip that it is in."""
    if picture.member is not None:
        member = "/".join([*picture.member.replace("\\", "/").split("/")[:-3], file])
        if member in inside[picture.path]:
            return Source(file, file, picture.path, member)
    near = picture.path.absolute().parents[2 if picture.member is None else 0] / file
    return Source(file, file, near) if near.is_file() else None


def _read_list(source: Source, domain: str) -> list[str]:
    try:
        with source.open() as file:
            lines = file.read().decode("utf-8-sig", "replace").splitlines()
    except OSError as error:
        raise read_error(error, source.path) from error
    names = [line.strip().rpartition(" ")[0] for line in lines if line.strip()]
    if wrong := [name for name in names if name.count("/") != 2 or not name.startswith(f"{domain}/")]:
        raise PictureError(f"{source.path} has {wrong[0]!r}; expected lines like '{domain}/class/name.jpg 0'")
    return names


# --- splits ----------------------------------------------------------------------------------------------------------


def assign(items: Sequence[Item], split: Split, seed: int = 0) -> list[set[str]]:
    """The splits of each picture."""
    if isinstance(split, Mapping):
        return _assign_lists(items, split)
    if not 0 <= split < 1:
        raise ValueError(f"split is {split}; give the share of pictures for 'val', from 0 to below 1, or lists of names")
    with_val = {i.domain for i in items if i.folder == "val"}
    with_test = {i.domain for i in items if i.folder == "test"}
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        if item.folder not in ("val", "test") and item.domain not in with_val:
            groups.setdefault((item.domain, item.label), []).append(item)
    val = {item.name for group in groups.values() for item in _share(group, split, seed)}
    out = []
    for item in items:
        part = item.folder if item.folder in ("val", "test") else "val" if item.name in val else "train"
        out.append({part} if item.domain in with_test else {part, "test"})
    return out


def _share(group: list[Item], share: float, seed: int) -> list[Item]:
    """Some of a class. Drawn by hashes of names, not by a generator: so files may come in any order, from any system,
    and in any format, and a lost file exchanges one picture at most."""
    count = 0 if share == 0 or len(group) < 2 else min(max(1, int(len(group) * share + 0.5)), len(group) - 1)
    return sorted(group, key=lambda i: (sha256(f"{seed}/{i.key}".encode()).digest(), i.name))[:count]


def _assign_lists(items: Sequence[Item], lists: Mapping[str, Iterable[str]]) -> list[set[str]]:
    if unknown := set(lists) - set(SPLITS):
        raise ValueError(f"lists are for {', '.join(sorted(unknown))}; name them {', '.join(SPLITS)}")
    wanted = {split: {key(name): name for name in names} for split, names in lists.items()}
    if both := sorted(wanted.get("train", {}).keys() & wanted.get("val", {}).keys()):
        raise ValueError(
            f"{plural(len(both), 'name')} in the lists of both train and val, {first_few(both)}; keep each in one"
        )
    known = Counter(item.key for item in items)
    for split, names in wanted.items():
        if lost := [name for stem, name in names.items() if stem not in known]:
            raise PictureError(f"the source lacks {plural(len(lost), 'picture')} of the list {split!r}, {first_few(lost)}")
        if double := [name for stem, name in names.items() if known[stem] > 1]:
            raise PictureError(
                f"{plural(len(double), 'name')} could be several files, {first_few(double)}; keep one format of each"
            )
    whole: set[str] = set() if "test" in wanted else {"test"}
    return [{split for split, names in wanted.items() if item.key in names} | whole for item in items]
