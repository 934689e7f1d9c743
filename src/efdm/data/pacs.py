"""PACS (Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017): seven classes in four domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from efdm.data.domains import DomainSet, Storage, decode_items
from efdm.data.folders import Skipped, Source, list_paths
from efdm.data.images import PictureError, StrPath
from efdm.data.layouts import Item, assign, find_items, key, read_list
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.text import first_few, plural

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")  # labels 1..7 of the lists
# Pictures of each class, counted in the test lists. The sums 2048, 2344, 1670 and 3929 are those of the authors.
PICTURES: Mapping[str, tuple[int, ...]] = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
# Lines of the published *_crossval_kfold.txt lists. The test list of a domain contains all pictures; the train list contains
# all pictures that are not in the crossval list.
CROSSVAL: Mapping[str, int] = {"art_painting": 208, "cartoon": 237, "photo": 171, "sketch": 398}
LISTS: Mapping[str, str] = {"train": "train", "crossval": "val", "test": "test"}  # word in the file name -> split
LIST = "photo_train_kfold.txt"  # identifies the folder of the lists


def load_pacs(
    source: StrPath | Sequence[StrPath],
    *,
    split: Literal["official", "own"] = "official",
    lists: StrPath | None = None,
    copy: Literal["complete", "partial"] = "complete",
    size: int = 227,
    seed: int = 0,
    storage: Storage = "memory",
    workers: int | None = None,
    progress: Report = ignore,
) -> DomainSet:
    """Read PACS from its folder, from zips of its domains, or from a folder of those zips.

    ``split="official"`` reads the authors' k-fold lists from the folder ``lists``, by default from a folder in or beside
    the source. Names are matched without extension, so pictures may be stored in another format. ``split="own"`` needs no
    lists: a tenth of each class and domain, drawn with ``seed``, is "val". ``copy="complete"`` accepts only the 9,991
    pictures of the published set; ``"partial"`` accepts fewer and lists the missing ones in ``skipped``. ``storage`` is that
    of `load_domains`.
    """
    check_choice("split", split, ("official", "own"))
    check_choice("copy", copy, ("complete", "partial"))
    sources = _sources(source)
    folder = (_lists_folder(sources) if lists is None else Path(lists)) if split == "official" else None
    listed = {} if folder is None else read_lists(folder)
    pictures, extra = find_items(sources)
    if listed:
        known = set(map(key, listed["test"]))
    else:
        known = {item.key for item in pictures if item.domain in PICTURES and item.label in CLASSES}
    items = [item for item in pictures if item.key in known]
    if not items:
        domains = first_few(sorted({item.domain for item in pictures}))
        message = f"{sources[0]} holds no pictures of PACS, whose domains are {', '.join(PICTURES)}; found {domains}"
        remedy = "; if only the names of the files differ, choose split='own'" if listed else ""
        raise PictureError(message + remedy, "split" if listed else ())
    extra += [(item.name, f"{item.name} is not part of PACS") for item in pictures if item.key not in known]
    if copy == "complete":
        _check_complete(sources, items, extra)
    if split == "official" and folder is None:
        message = f"no lists such as {LIST} in or beside {sources[0]}; pass their folder as lists=..., or choose split='own'"
        raise PictureError(f"{message} (results are then not comparable to published ones)", ["lists", "split"])
    present = {item.key for item in items}
    missing = [(name, f"{name} is missing") for name in listed.get("test", ()) if key(name) not in present]
    splits = {part: [name for name in names if key(name) in present] for part, names in listed.items()}
    items = assign(items, splits or 0.1, seed)
    data = decode_items(items, size=size, classes=CLASSES, storage=storage, workers=workers, progress=progress)
    if copy == "complete" and data.skipped:
        bad = first_few([reason for _, reason in data.skipped])
        message = f"{plural(len(data.skipped), 'picture')} of PACS cannot be read: {bad}; or choose copy='partial'"
        raise PictureError(message, "copy")
    return replace(data, skipped=missing + extra + data.skipped)


def _sources(source: StrPath | Sequence[StrPath]) -> list[Path]:
    paths = list_paths(source)
    patterns = [pattern for name in PICTURES for pattern in (name, f"*/{name}")]
    if len(paths) != 1 or any(folder.is_dir() for pattern in patterns for folder in paths[0].glob(pattern)):
        return paths
    return sorted(path for name in PICTURES for path in paths[0].glob(f"*{name}.zip")) or paths


def _lists_folder(sources: Sequence[Path]) -> Path | None:
    bases = [base for path in sources for base in ((path, path.parent) if path.is_dir() else (path.parent,))]
    paths = (path for base in bases for pattern in (LIST, f"*/{LIST}") for path in sorted(base.glob(pattern)))
    return next((path.parent for path in paths), None)


def read_lists(folder: Path) -> dict[str, list[str]]:
    """Return the names in the twelve lists by split; raise if they are not the published lists."""
    out: dict[str, list[str]] = {split: [] for split in LISTS.values()}
    for domain, counts in PICTURES.items():
        names = {}
        for word, split in LISTS.items():
            path = folder / f"{domain}_{word}_kfold.txt"
            names[split] = read_list(Source(path.name, path.name, path), domain)
            out[split] += names[split]
        train, val, test = (set(map(key, names[split])) for split in ("train", "val", "test"))
        odd, expected = sorted((train & val) | ((train | val) ^ test)), (CROSSVAL[domain], sum(counts))
        if odd or (len(val), len(test)) != expected:
            sizes = f"expected {expected[0]} pictures in crossval and {expected[1]} in test, got {len(val)} and {len(test)}"
            what = f"they disagree about {plural(len(odd), 'picture')}, {first_few(odd)}" if odd else sizes
            raise PictureError(f"the lists of {domain} in {folder} are not the published ones: {what}; download them again")
    return out


def _check_complete(sources: Sequence[Path], items: Sequence[Item], extra: Skipped) -> None:
    counts, domains = Counter((item.domain, item.label) for item in items), {item.domain for item in items}
    problems = [f"{domain} is missing" for domain in PICTURES if domain not in domains]
    for domain in sorted(domains):
        for label, count in zip(CLASSES, PICTURES[domain], strict=True):
            if counts[domain, label] != count:
                problems.append(f"{domain}/{label} has {plural(counts[domain, label], 'picture')}, expected {count}")
    problems += [reason for _, reason in extra]
    if problems:
        what = f"{first_few(list(map(str, sources)), 4)}: not the complete PACS: {first_few(problems, 5)}"
        raise PictureError(f"{what}; copy or download it again, or choose copy='partial'", "copy")
