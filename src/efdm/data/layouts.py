"""Where the pictures of a set of domains lie, and which of them are for training."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from efdm.data.folders import Source, find_pictures
from efdm.data.images import PictureError, StrPath

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
LAYOUT = "expected domain/class/picture or domain/train/class/picture, in any number of common outer folders"


@dataclass(frozen=True)
class Item:
    """One picture to read and what its folders say. ``folder`` is a value of `SPLIT_FOLDERS`, or ""."""

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
        raise PictureError(f"{len(twice)} pictures are there twice, {some(twice)}; give each source once")
    return sorted(items, key=lambda i: (i.domain, i.label, i.name)), outside


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
        raise PictureError(f"{path} holds pictures such as {some(examples)}; {LAYOUT}")
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


def some(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """The first few of many names."""
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


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
        raise ValueError(f"{len(both)} names are in the lists of both train and val, {some(both)}; keep each in one")
    known = Counter(item.key for item in items)
    for split, names in wanted.items():
        if lost := [name for stem, name in names.items() if stem not in known]:
            raise PictureError(f"{len(lost)} pictures of the list {split!r} are not in the source, {some(lost)}")
        if double := [name for stem, name in names.items() if known[stem] > 1]:
            raise PictureError(f"{len(double)} names could be several files, {some(double)}; keep one format of each")
    whole: set[str] = set() if "test" in wanted else {"test"}
    return [{split for split, names in wanted.items() if item.key in names} | whole for item in items]
