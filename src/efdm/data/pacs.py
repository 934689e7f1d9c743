"""PACS (Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017): seven classes in four domains."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from efdm.data.domains import DomainSet, decode_items
from efdm.data.images import PictureError, StrPath, read_error
from efdm.data.layouts import Item, assign, find_items, key
from efdm.progress import Report, ignore
from efdm.text import first_few, plural

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")  # labels 1..7 of the lists, in this order
# Pictures of each class, counted in the test lists; in sum the 2048, 2344, 1670 and 3929 that the authors give.
PICTURES: Mapping[str, tuple[int, ...]] = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
# Lines of each list, counted in the *_kfold.txt files that go with the set; no table of them was published.
LINES: Mapping[str, Mapping[str, int]] = {
    "art_painting": {"train": 1840, "crossval": 208, "test": 2048},
    "cartoon": {"train": 2107, "crossval": 237, "test": 2344},
    "photo": {"train": 1499, "crossval": 171, "test": 1670},
    "sketch": {"train": 3531, "crossval": 398, "test": 3929},
}
LISTS: Mapping[str, str] = {"train": "train", "crossval": "val", "test": "test"}  # the word in a file's name -> our split

LIST = "photo_train_kfold.txt"  # by which a folder of lists is known


def load_pacs(
    source: StrPath | Sequence[StrPath],
    *,
    split: Literal["official", "own"] = "official",
    lists: StrPath | None = None,
    copy: Literal["complete", "partial"] = "complete",
    size: int = 227,
    seed: int = 0,
    workers: int | None = None,
    progress: Report = ignore,
) -> DomainSet:
    """PACS from its folder, from zips of its domains, or from a folder that holds those zips.

    ``split="official"`` reads the authors' k-fold lists from the folder ``lists``, by default one in or beside the source;
    names are matched without extension, so pictures may have been saved in another format. ``"own"`` needs no lists: a
    tenth of each class and domain for "val", drawn with ``seed``. ``copy="complete"`` accepts nothing but the 9,991
    pictures of the published set; ``"partial"`` takes what is there and names what is not in ``skipped``.
    """
    for what, value, choices in (("split", split, ("official", "own")), ("copy", copy, ("complete", "partial"))):
        if value not in choices:
            raise ValueError(f"{what}={value!r} is not one of {', '.join(map(repr, choices))}")
    sources = _sources(source)
    folder = (_lists_folder(sources) if lists is None else Path(lists)) if split == "official" else None
    named = {} if folder is None else read_lists(folder)
    items, skipped = _checked(sources, named, split, copy)
    there = {item.key for item in items}
    lines = {part: [name for name in names if key(name) in there] for part, names in named.items()}
    parts = assign(items, lines or 0.1, seed)
    data = decode_items(items, parts, size=size, classes=CLASSES, workers=workers, progress=progress)
    if copy == "complete" and data.skipped:
        bad = first_few([reason for _, reason in data.skipped])
        raise PictureError(f"{plural(len(data.skipped), 'picture')} of PACS cannot be read: {bad}; or choose copy='partial'")
    return replace(data, skipped=skipped + data.skipped)


# --- finding ---------------------------------------------------------------------------------------------------------


def _sources(source: StrPath | Sequence[StrPath]) -> list[Path]:
    paths = [Path(s) for s in ([source] if isinstance(source, str | os.PathLike) else source)]
    if len(paths) != 1 or not paths[0].is_dir():
        return paths
    folder = paths[0]
    if any((base / domain).is_dir() for base in (folder, *_folders(folder)) for domain in PICTURES):
        return paths
    return sorted(path for domain in PICTURES for path in folder.glob(f"*{domain}.zip")) or paths


def _lists_folder(sources: Sequence[Path]) -> Path | None:
    near = [base for path in sources for base in ((path, path.parent) if path.is_dir() else (path.parent,))]
    for base in dict.fromkeys(near):
        for folder in (base, *_folders(base)):
            if (folder / LIST).is_file():
                return folder
    return None


def _folders(base: Path) -> list[Path]:
    try:
        return sorted(path for path in base.iterdir() if path.is_dir())
    except OSError:  # only a place to look into
        return []


# --- lists -----------------------------------------------------------------------------------------------------------


def read_lists(folder: Path) -> dict[str, list[str]]:
    """The names in the twelve lists, by split; every list is checked for its length, labels and repetitions."""
    out: dict[str, list[str]] = {split: [] for split in LISTS.values()}
    for domain, lengths in LINES.items():
        parts = {word: _read_list(folder / f"{domain}_{word}_kfold.txt", domain, lines) for word, lines in lengths.items()}
        train, val, test = (set(map(key, parts[word])) for word in ("train", "crossval", "test"))
        if train & val or train | val != test:
            odd = sorted((train & val) | ((train | val) ^ test))
            raise PictureError(
                f"the lists of {domain} in {folder} disagree about {plural(len(odd), 'picture')}, {first_few(odd)}; each "
                "picture of the test list must be in one of train and crossval; download the lists again"
            )
        for word, names in parts.items():
            out[LISTS[word]] += names
    return out


def _read_list(path: Path, domain: str, lines: int) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise read_error(error, path) from error
    except UnicodeDecodeError as error:
        raise PictureError(f"{path} is not a text file; download the lists again") from error
    names = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        folders = name.split("/")
        if len(folders) != 3 or folders[0] != domain or _label(folders[1]) != label:
            raise PictureError(f"{path}, line {number} is {line!r}; expected a line like '{domain}/dog/name.jpg 1'")
        names.append(name)
    if twice := [name for name, times in Counter(map(key, names)).items() if times > 1]:
        raise PictureError(
            f"{path} names {plural(len(twice), 'picture')} twice, {first_few(twice)}; download the lists again"
        )
    if len(names) != lines:
        raise PictureError(f"{path} has {len(names)} lines, the published list {lines}; download the lists again")
    return names


def _label(class_name: str) -> str:
    return str(CLASSES.index(class_name) + 1) if class_name in CLASSES else ""


# --- checking --------------------------------------------------------------------------------------------------------

Found = tuple[list[str], list[tuple[str, str]]]  # what is wrong in words, and (name, reason) of every file concerned


def _checked(
    sources: Sequence[Path], named: Mapping[str, Sequence[str]], split: str, copy: str
) -> tuple[list[Item], list[tuple[str, str]]]:
    """The pictures of PACS and what was left out. Raises for what cannot be used so, the pictures before the lists."""
    items, skipped = find_items(sources)
    if not any(_is_of_pacs(item) for item in items):
        found = first_few(sorted({item.domain for item in items}))
        raise PictureError(f"{sources[0]} holds nothing of PACS, whose domains are {', '.join(PICTURES)}; it has {found}")
    problems, wrong = _against_lists(items, named["test"]) if named else _against_counts(items)
    if gone := _domains_gone(items):
        problems.insert(0, f"{_and(gone)} {'is' if len(gone) == 1 else 'are'} not there")
    skipped += wrong
    lost = ""
    if split == "official" and not named:
        lost = (
            f"there are no lists such as {LIST} in or beside {sources[0]}; give their folder as lists=..., "
            "or choose split='own', a reproducible split that is not the one of published numbers"
        )
    if copy == "complete" and (problems or skipped):
        what = "; ".join([*_renamed(items), *problems][:4])
        what = what or f"{plural(len(skipped), 'stray picture')}, {first_few([name for name, _ in skipped])}"
        also = f". And {lost}" if lost else ""
        where = _and(list(map(str, sources))) + (" is" if len(sources) == 1 else " are")
        again = (
            "Give the others, too" if gone and len(problems) == 1 and sources[0].is_file() else "Copy or download it again"
        )
        raise PictureError(f"{where} not the complete PACS: {what}. {again}, or choose copy='partial'{also}")
    if lost:
        raise PictureError(lost)
    left_out = {name for name, _ in wrong}
    items = [item for item in items if item.name not in left_out]
    if not items:
        raise PictureError(f"{sources[0]} has no picture that is in the lists; choose split='own', which needs none")
    return items, skipped


def _against_lists(items: Sequence[Item], listed: Sequence[str]) -> Found:
    there = {item.key for item in items}
    known = {key(name) for name in listed}
    missing = [name for name in listed if key(name) not in there]
    unknown = [item.name for item in items if item.key not in known]
    problems = []
    gone = _domains_gone(items)
    for domain, counts in PICTURES.items():
        if domain not in gone and (lost := [name for name in missing if name.startswith(f"{domain}/")]):
            problems.append(f"{domain} lacks {len(lost)} of {sum(counts)} pictures ({first_few(lost)})")
    if unknown:
        problems.append(f"{plural(len(unknown), 'picture')} not in the lists ({first_few(unknown)})")
    twice = [name for name, times in Counter(item.key for item in items).items() if times > 1 and name in known]
    if twice:
        raise PictureError(f"{plural(len(twice), 'picture')} there in two formats ({first_few(twice)}); keep one of each")
    reasons = [(name, f"{name} is in the lists but not in this copy") for name in missing]
    return problems, reasons + [(name, f"{name} is not in the lists and was left out") for name in unknown]


def _against_counts(items: Sequence[Item]) -> Found:
    unknown = [item.name for item in items if not _is_of_pacs(item)]
    problems = (
        [f"{plural(len(unknown), 'picture')} of no class and domain of PACS ({first_few(unknown)})"] if unknown else []
    )
    found, gone = Counter((item.domain, item.label) for item in items), _domains_gone(items)
    for domain, counts in PICTURES.items():
        wrong = [
            f"{domain}/{label} has {plural(found[domain, label], 'picture')}, expected {count}"
            for label, count in zip(CLASSES, counts, strict=True)
            if found[domain, label] != count and domain not in gone
        ]
        if wrong:
            problems.append(wrong[0] + (f" (and {len(wrong) - 1} more classes differ)" if len(wrong) > 1 else ""))
    return problems, [(name, f"{name} is of no class and domain of PACS and was left out") for name in unknown]


def _is_of_pacs(item: Item) -> bool:
    return item.domain in PICTURES and item.label in CLASSES


def _domains_gone(items: Sequence[Item]) -> list[str]:
    """Those of which no picture is there: one word of them is better than a count for each."""
    there = {item.domain for item in items if _is_of_pacs(item)}
    return [domain for domain in PICTURES if domain not in there]


def _and(names: Sequence[str]) -> str:
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def _renamed(items: Sequence[Item]) -> list[str]:
    """Questions about folders whose names are almost those that are missing."""
    told = []
    for there, names in (({i.domain for i in items}, PICTURES), ({i.label for i in items}, CLASSES)):
        missing = [name for name in names if name not in there]
        for name in sorted(there - set(names)):
            if close := get_close_matches(name.lower().replace(" ", "_"), missing, n=1):
                told.append(f"is {name} your {close[0]}?")
    return told
