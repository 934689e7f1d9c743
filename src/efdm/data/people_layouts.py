"""Layouts of re-identification data sets: people, cameras and splits from file names.

Names may have any picture extension and any common folder before them. docs/guide/re-identification.md describes the rows.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from efdm.data.folders import Source, find_pictures, names_in
from efdm.data.images import PictureError, StrPath
from efdm.data.people_splits import (
    FEW,
    GALLERY,
    QUERY,
    SPLITS,
    TRAIN,
    Found,
    Shot,
    divide_cuhk01,
    divide_cuhk03,
    divide_grid,
    divide_msmt17,
)
from efdm.data.picture_formats import READABLE
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.text import first_few, plural

CUHK03_FILE = "cuhk-03.mat"  # CUHK03 is published as one file


@dataclass(frozen=True)
class Layout:
    """How to read a set from its file names.

    ``pattern`` matches names without extension, after any common folder. Its groups are "person", "camera" and optionally
    "part", the folder that gives the splits in ``parts``. ``divide`` replaces the splits of all pictures by those of
    published lists, and ``splits`` is the number of alternative lists. ``beside`` are folders of pictures that do not belong
    to the set. ``distractors`` are numbers that several unknown people share. ``published`` are the numbers of pictures in
    "train", "query" and "gallery" of the complete set.
    """

    example: str
    pattern: str
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    person: Callable[[re.Match[str]], str] = lambda match: match["person"]
    camera: Callable[[re.Match[str]], str] = lambda match: match["camera"]
    divide: Callable[[list[Shot], Path, int], Found] = lambda shots, path, split: Found(shots, [], [])
    splits: int = 1
    beside: tuple[str, ...] = ()
    distractors: tuple[int, ...] = ()
    published: tuple[int, ...] = ()
    automatic: str = ""  # a narrower pattern, by which the layout is recognized if none is given


def find_people(path: StrPath, layout: str = "auto", split: int = 0) -> Found:
    """Return the pictures of a folder or zip with their people, cameras and splits, without reading them."""
    path = Path(path)
    try:
        sources = find_pictures(path)
    except PictureError as error:
        if any(PurePosixPath(name).name.lower() == CUHK03_FILE for name in names_in(path)):
            names = f"names like {LAYOUTS['cuhk03'].example}, as torchreid writes them"
            raise PictureError(f"{path}: the pictures of {CUHK03_FILE} are not extracted; expected {names}") from error
        raise
    if layout == "auto":
        layout = _recognize(path, sources)
    check_choice("layout", layout, LAYOUTS)
    row = LAYOUTS[layout]
    if not 0 <= split < row.splits:
        raise SettingError(f"split must be from 0 to {row.splits - 1} for {layout}, got {split}", "split")
    matches = _match(path, sources, row.pattern)
    strays = [source.name for source in sources if source.name not in matches and not is_beside(source.name, row)]
    total = len(matches) + len(strays)
    if not matches or len(strays) > FEW * total:
        wrong = f"{len(strays)} of {plural(total, 'picture')} are not named as in {layout}: {first_few(strays)}"
        raise PictureError(f"{path}: {wrong}; expected names like {row.example}", "layout")
    _check_one_set(path, matches)
    people = _to_numbers({name: row.person(match) for name, match in matches.items()})
    cameras = _to_numbers({name: row.camera(match) for name, match in matches.items()})
    parts = {name: row.parts.get((match.groupdict().get("part") or "").lower(), TRAIN) for name, match in matches.items()}
    shots = [Shot(own, people[own.name], cameras[own.name], parts[own.name]) for own in sources if own.name in matches]
    counted = [shot for shot in shots if shot.person >= 0]  # Market-1501 marks bad detections with -1
    divided, skipped, notes, _ = row.divide(counted, path, split)
    skipped = [(name, f"{name} is not named as in {layout}, like {row.example}") for name in strays] + skipped
    notes += [f"{plural(len(strays), 'picture')} with other names: {first_few(strays)}"] if strays else []
    return Found(divided, skipped, notes + _people_in_both(divided), layout)


def is_beside(name: str, row: Layout) -> bool:
    """Return True for a file in one of the folders ``row.beside``, such as ``gt_bbox`` of Market-1501."""
    return not set(row.beside).isdisjoint(PurePosixPath(name).parts[:-1])


def missing(layout: str, counts: Mapping[str, int]) -> list[str]:
    """Return a phrase for each split in ``counts`` that has another number of pictures than the published set."""
    published = zip(SPLITS, LAYOUTS[layout].published, strict=False)
    return [f"{counts[split] or 'no'} {split} pictures, expected {n}" for split, n in published if counts[split] != n]


def _recognize(path: Path, sources: Sequence[Source]) -> str:
    """Return the layout that explains most of about a thousand names, the first one if several explain equally many."""
    sources = sources[:: max(1, len(sources) // 1000)]
    counts = {}
    for name, row in LAYOUTS.items():
        matches = _match(path, sources, row.automatic or row.pattern)
        # CUHK03 has two versions of every picture, and the first one may be incomplete
        counts[name] = sum(own.name in matches or is_beside(own.name, row) for own in sources) if matches else 0
    best = max(counts, key=counts.__getitem__)
    if not counts[best]:
        examples = "; ".join(f"{name} {row.example}" for name, row in LAYOUTS.items() if row.splits < 20)
        names = first_few([source.name for source in sources])
        wrong = f"{path} holds pictures such as {names}, which match no layout; expected {examples}"
        raise PictureError(f"{wrong}; choose layout 'folders' to read person/camera_any.jpg", "layout")
    return best


def _match(path: Path, sources: Sequence[Source], pattern: str) -> dict[str, re.Match[str]]:
    """Return the matches by name. The name of the source itself may be the folder of a split."""
    folder = path.stem if path.suffix.lower() == ".zip" else path.absolute().name
    extensions = "|".join(map(re.escape, READABLE))
    compiled = re.compile(rf"(?P<outer>(?:.*?/)?){pattern}(?:{extensions})+", re.IGNORECASE)
    matches = {source.name: compiled.fullmatch(f"{folder}/{source.name}") for source in sources}
    return {name: match for name, match in matches.items() if match}


def _check_one_set(path: Path, matches: Mapping[str, re.Match[str]]) -> None:
    if len(outer := sorted({match["outer"] for match in matches.values()})) > 1:
        folders = first_few([folder.rstrip("/") for folder in outer])
        raise PictureError(f"{path} holds {len(outer)} sets, in {folders}; pass the folder of one of them")
    stems = {name: PurePosixPath(name).with_suffix("") for name in matches}
    times = Counter(stems.values())
    if twice := [name for name, stem in stems.items() if times[stem] > 1]:
        raise PictureError(f"{path}: several files of one picture: {first_few(twice, 4)}; keep one of each")


def _to_numbers(texts: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers in texts such as "0012" or "c3", or the ranks of texts that are not numbered alike."""
    matches = {name: re.fullmatch(r"([a-z]*)(-?\d+)", text, re.IGNORECASE) for name, text in texts.items()}
    if len({match and match[1].lower() for match in matches.values()}) == 1 and all(matches.values()):
        return {name: int(match[2]) for name, match in matches.items() if match}
    order = {text: number for number, text in enumerate(sorted(set(texts.values())), 1)}
    return {name: order[text] for name, text in texts.items()}


def _people_in_both(shots: Sequence[Shot]) -> list[str]:
    """Return a warning if people of the training set are in the test set."""
    train = {shot.person for shot in shots if "train" in shot.splits}
    both = [str(person) for person in sorted(train & {shot.person for shot in shots if "train" not in shot.splits})]
    return [f"{plural(len(both), 'person ID')} in training and in test: {first_few(both)}"] if both else []


BOXES = {"bounding_box_train": TRAIN, "query": QUERY, "bounding_box_test": GALLERY}
IN_BOXES = rf"(?P<part>{'|'.join(BOXES)})/"
NEW, CLASSIC = ("cuhk03_new_protocol_config_{}.mat", "splits_new_{}.json"), ("splits_classic_{}.json",)  # lists of CUHK03
PEOPLE = {"train": TRAIN, "query": QUERY, "probe": QUERY, "gallery": GALLERY}


def _cuhk03_layout(kind: str, files: Sequence[str], *published: int, splits: int = 1) -> Layout:
    return Layout(
        f"images_{kind}/1_001_1_01.png", rf"images_{kind}/(?P<pair>\d)_(?P<person>\d{{3}})_(?P<camera>[12])_\d\d",
        person=lambda match: match["pair"] + match["person"],  # people are numbered within a pair of cameras
        camera=lambda match: str(2 * int(match["pair"]) + int(match["camera"]) - 2),
        divide=functools.partial(divide_cuhk03, files=[file.format(kind) for file in files]),
        splits=splits, beside=("images_labeled", "images_detected"), published=published,
    )  # fmt: skip


# published: Market-1501 (Zheng et al. 2015; its 19,732 test pictures without the 3,819 of person -1), DukeMTMC-reID (Zheng
# et al. 2017), GRID (Loy et al. 2009), CUHK01 (Li et al. 2012), CUHK03 (Zhong et al. 2017), MSMT17 (Wei et al. 2018)
LAYOUTS: Mapping[str, Layout] = {
    "market1501": Layout(
        "bounding_box_train/0002_c1s1_000451_03.jpg", IN_BOXES + r"(?P<person>-1|\d{4})_c(?P<camera>\d)s\d_\d+_\d+", BOXES,
        beside=("gt_bbox", "gt_query", "images"), distractors=(0,), published=(12_936, 3_368, 15_913),
    ),
    "dukemtmc": Layout(
        "bounding_box_train/0001_c2_f0046182.jpg", IN_BOXES + r"(?P<person>\d{4})_c(?P<camera>\d)_f\d+", BOXES,
        published=(16_522, 2_228, 17_661),
    ),
    "market-like": Layout(
        "bounding_box_train/0001_c2_any.jpg", IN_BOXES + r"(?P<person>-1|\d+)_c(?P<camera>\d+)[^/\d][^/]*", BOXES,
        distractors=(0,),
    ),
    "grid": Layout(
        "probe/0001_1_25004_107_32_106_221.jpeg", r"(?P<part>probe|gallery)/(?P<person>\d{4})_(?P<camera>\d)(?:_-?\d+)+",
        PEOPLE, divide=divide_grid, splits=10, distractors=(0,), published=(250, 125, 900),
    ),
    "cuhk01": Layout(
        "campus/0001001.png", r"(?:campus/)?(?P<person>\d{4})(?P<camera>00[1-4])",
        camera=lambda match: str((int(match["camera"]) + 1) // 2), divide=divide_cuhk01, published=(3_884,),
    ),
    "cuhk03": _cuhk03_layout("detected", NEW, 7_365, 1_400, 5_332),
    "cuhk03-labeled": _cuhk03_layout("labeled", NEW, 7_368, 1_400, 5_328),
    "cuhk03-classic": _cuhk03_layout("detected", CLASSIC, splits=20),
    "cuhk03-labeled-classic": _cuhk03_layout("labeled", CLASSIC, splits=20),
    "msmt17": Layout(
        "train/0000/0000_000_01_0303morning_0008_0.jpg",
        r"(?:mask_)?(?P<part>train|test)(?:_v2)?/\d{4}/(?P<person>\d{4})_\d{3}_(?P<camera>\d\d)_[^/]*",
        {"train": TRAIN, "test": GALLERY},
        # people of both folders are numbered from 0
        person=lambda match: match["person"] if match["part"].lower() == "train" else f"1{match['person']}",
        divide=divide_msmt17, published=(32_621, 11_659, 82_161),
    ),
    "folders": Layout(
        "0001/c2_any.jpg", r"(?:(?P<part>train|query|probe|gallery)/)?(?P<person>[^/]+)/(?P<camera>[^/_]+)_[^/]*", PEOPLE,
        automatic=r"(?:(?:train|query|probe|gallery)/)?[^/]+/c(?:am(?:era)?)?\d+_[^/]*",
    ),
}  # fmt: skip
