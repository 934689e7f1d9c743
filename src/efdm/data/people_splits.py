"""The published splits of re-identification data sets, from the lists that come with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from efdm.data.folders import Skipped, Source, names_in
from efdm.data.images import PictureError, reading
from efdm.errors import requires
from efdm.text import first_few, plural

SPLITS = ("train", "query", "gallery")
TRAIN, QUERY, GALLERY = ((split,) for split in SPLITS)
FEW = 0.1  # share of pictures that are missing or have other names; more indicate a part of a set or another layout


class Shot(NamedTuple):
    """A picture of a person, taken by a camera, with the names of its splits."""

    source: Source
    person: int
    camera: int
    splits: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.source.name


class Found(NamedTuple):
    """Pictures with their final splits, (name, reason) of skipped and missing ones, and warnings about the copy."""

    shots: list[Shot]
    skipped: Skipped
    notes: list[str]
    layout: str = "unknown"


def divide_cuhk01(shots: Sequence[Shot], path: Path, split: int) -> Found:
    """Leave all pictures in "train", and name the missing ones."""
    expected = [f"campus/{person:04d}{number:03d}" for person in range(1, 972) for number in range(1, 5)]
    stored = {f"campus/{PurePosixPath(shot.name).name.split('.')[0]}" for shot in shots}
    return Found(list(shots), *_name_missing(expected, stored))


def divide_grid(shots: Sequence[Shot], path: Path, split: int) -> Found:
    """Assign the people listed in ``features_and_partitions.mat`` to "train"; without the file, all but distractors.

    Missing pictures other than distractors are named.
    """
    source = _find_file(path, file := "features_and_partitions.mat")
    everyone = {shot.person for shot in shots if shot.person}
    people = set(_read_published(source, _grid_partition, split)) if source else everyone
    moved = [shot._replace(splits=TRAIN) if shot.person in people else shot for shot in shots]
    expected = [f"{folder}/{person:04d}" for folder in ("probe", "gallery") for person in range(1, 251)]
    stored = {f"{'probe' if shot.splits == QUERY else 'gallery'}/{shot.person:04d}" for shot in shots}
    skipped, notes = _name_missing(expected, stored)
    return Found(moved, skipped, notes if source else [_no_published_splits(file), *notes])


def _name_missing(expected: Sequence[str], stored: Set[str]) -> tuple[Skipped, list[str]]:
    """Return (name, reason) of missing pictures and a warning, but nothing for a part of a set: if many are missing."""
    lost = [name for name in expected if name not in stored]
    if not lost or len(lost) > FEW * len(expected):
        return [], []
    return [(name, f"{name} is missing") for name in lost], [f"{plural(len(lost), 'picture')} missing: {first_few(lost)}"]


def divide_cuhk03(shots: Sequence[Shot], path: Path, split: int, *, files: Sequence[str]) -> Found:
    """Apply the lists of the first of ``files`` that exists: a .mat of the new protocol, or JSON as torchreid writes it."""
    source = next((source for file in files if (source := _find_file(path, file))), None)
    if source is None:
        return Found(list(shots), [], [_no_published_splits(" or ".join(files))])
    lists = _read_published(source, _cuhk03_mat if source.name.lower().endswith(".mat") else _cuhk03_json, split)
    return _by_lists(shots, lists, source.name)


def divide_msmt17(shots: Sequence[Shot], path: Path, split: int) -> Found:
    """Apply the lists of queries and gallery to test pictures, and those of training and validation to all others."""
    files = {"train": ("list_train.txt", "list_val.txt"), "query": ("list_query.txt",), "gallery": ("list_gallery.txt",)}
    sources = {file: _find_file(path, file) for own in files.values() for file in own}
    if lost := [file for file, source in sources.items() if source is None]:
        return Found(list(shots), [], [_no_published_splits(first_few(lost, 4))])
    # the first words of lines such as ``0000/0000_000_01_0303morning_0008_0.jpg 0``
    read = {file: [line.split()[0] for line in source.lines()] for file, source in sources.items() if source}
    lists = {part: [name for file in own for name in read[file]] for part, own in files.items()}
    train = _by_lists([shot for shot in shots if shot.splits == TRAIN], {"train": lists.pop("train")}, "list_train.txt")
    test = _by_lists([shot for shot in shots if shot.splits != TRAIN], lists, "list_query.txt")
    return Found(train.shots + test.shots, train.skipped + test.skipped, train.notes + test.notes)


def _by_lists(shots: Sequence[Shot], lists: Mapping[str, Iterable[str]], file: str) -> Found:
    """Assign each picture the splits whose lists contain it. Names are compared without folders and extension."""
    names = {split: {PurePosixPath(name).stem: name for name in own} for split, own in lists.items()}
    divided = [
        shot._replace(splits=tuple(split for split, own in names.items() if PurePosixPath(shot.name).stem in own))
        for shot in shots
    ]
    listed = [shot for shot in divided if shot.splits]
    if not shots:  # a copy without this folder
        return Found([], [], [])
    if not listed:
        raise PictureError(f"{file} lists none of the pictures, such as {shots[0].name}; download it again")
    stored = {PurePosixPath(shot.name).stem for shot in shots}
    lost = sorted({name for own in names.values() for stem, name in own.items() if stem not in stored})
    unlisted = [shot.name for shot in divided if not shot.splits]
    reasons = {"listed but missing": lost, "not in any list": unlisted}
    return Found(
        listed,
        [(name, f"{name} is {reason}") for reason, own in reasons.items() for name in own],
        [f"{plural(len(own), 'picture')} {reason}: {first_few(own)}" for reason, own in reasons.items() if own],
    )


def _no_published_splits(file: str) -> str:
    return f"{file} not found, so the published splits are not available"


def _find_file(path: Path, file: str) -> Source | None:
    """Return a file of the folder or zip, in any of its folders, or beside it."""
    for name in names_in(path):
        if PurePosixPath(name).name.lower() == file.lower():
            return Source(name, name, path, name) if path.is_file() else Source(name, name, path / name)
    beside = path.absolute().parent / file
    return Source(file, file, beside) if beside.is_file() else None


def _read_published(source: Source, read: Any, split: int) -> Any:
    with reading(str(source), "is not the published file"):
        return read(source, split)


def _load_mat(source: Source, *names: str) -> dict[str, Any]:
    with requires("reid"):
        from scipy.io import loadmat  # takes a second to import
    with source.open() as file:
        return dict(loadmat(file, variable_names=names))


def _grid_partition(source: Source, split: int) -> list[int]:
    # a cell array of ten structures, whose third field holds the people of the training set
    return [int(person) for person in _load_mat(source, "trainIdxAll")["trainIdxAll"][0][split][0][0][2].ravel()]


def _cuhk03_mat(source: Source, split: int) -> dict[str, list[str]]:
    values = _load_mat(source, "filelist", *(f"{part}_idx" for part in SPLITS))
    files = [str(name[0]) for name in values["filelist"].ravel()]
    return {part: [files[i - 1] for i in values[f"{part}_idx"].ravel()] for part in SPLITS}


def _cuhk03_json(source: Source, split: int) -> dict[str, list[str]]:
    with source.open() as file:
        chosen = json.load(file)[split]
    return {part: [name.replace("\\", "/") for name, *_ in chosen[part]] for part in SPLITS}
