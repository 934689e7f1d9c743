"""Search a gallery for the people of query pictures: ranked lists, and sheets with framed pictures."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from efdm.data.folders import find_pictures
from efdm.data.images import Picture, PictureError, StrPath, resize
from efdm.data.people import UNNAMED, PersonSet, read_shots
from efdm.data.people_layouts import LAYOUTS, find_people, is_beside
from efdm.data.people_splits import Found, Shot
from efdm.data.sheets import sheet
from efdm.progress import Report, ignore
from efdm.reid.evaluate import extract_at
from efdm.reid.retrieval import CHUNK, pairwise
from efdm.training.lanes import finish

Match = Literal["same", "other", "unknown"]
UNKNOWN = -1  # person and camera of pictures that are not named as in a layout
DISTRACTOR = -2  # person of distractors, which share a number but show several people
FRAMES: Mapping[Match, tuple[float, float, float]] = {
    "same": (0.0, 0.65, 0.25), "other": (0.85, 0.1, 0.1), "unknown": (0.6, 0.6, 0.6),
}  # fmt: skip


class Hit(NamedTuple):
    """A picture of the gallery, and whether it shows the person of the query."""

    name: str
    distance: float
    match: Match


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Ranked pictures: ``ranked`` ``(q, top)`` are indices of the gallery for the queries at ``queries`` ``(q,)``.

    Pictures of the query's person from its camera are excluded, as is the query itself. Where fewer than ``top`` pictures
    remain, ``distances`` ``(q, top)`` are infinite.
    """

    query: PersonSet
    gallery: PersonSet
    queries: Tensor
    ranked: Tensor
    distances: Tensor

    def hits(self, row: int) -> list[Hit]:
        """Return the ranked pictures of a query, nearest first."""
        person = int(self.query.people[self.queries[row]])
        hits = []
        for index, distance in zip(self.ranked[row].tolist(), self.distances[row].tolist(), strict=True):
            other = int(self.gallery.people[index])
            unknown = UNKNOWN in (person, other) or person == other == DISTRACTOR
            match: Match = "unknown" if unknown else "same" if person == other else "other"
            hits.append(Hit(self.gallery.names[index], max(0.0, distance), match))  # rounding gives -1e-7
        return [hit for hit in hits if hit.distance < torch.inf]

    def sheet(self, *, rows: int = 8, cell: tuple[int, int] = (160, 80), title: str = "") -> Picture:
        """Return a sheet: queries on the left, their ranked pictures on the right.

        Frames are green around pictures of the same person, red around others, and gray where the person is unknown. At
        most ``rows`` queries are shown, evenly spaced.
        """
        chosen = torch.linspace(0, len(self.queries) - 1, min(rows, len(self.queries))).round().int().tolist()
        stems = {Path(name).stem for name in self.query.names}
        parts = 1 if len(stems) == len(self.query.names) else 2  # 2: with the folder, as in 0001/c2_7
        lines, labels = [], []
        for row in chosen:
            hits, number = self.hits(row), int(self.queries[row])
            pictures = [resize(self.gallery.images[i].cpu() / 255, cell) for i in self.ranked[row, : len(hits)].tolist()]
            framed = [_framed(picture, FRAMES[hit.match]) for picture, hit in zip(pictures, hits, strict=True)]
            lines.append([self.query.images[number].cpu() / 255, *framed])
            labels.append("/".join(Path(self.query.names[number]).with_suffix("").parts[-parts:]))
        columns = ["query", *map(str, range(1, max(map(len, lines))))]
        return Picture(sheet(lines, row_labels=labels, column_labels=columns, cell=cell, gap=6, title=title))


def _framed(picture: Tensor, colour: tuple[float, float, float]) -> Tensor:
    width = max(2, picture.shape[-1] // 16)
    framed = torch.tensor(colour)[:, None, None].expand_as(picture).clone()
    framed[:, width:-width, width:-width] = picture[:, width:-width, width:-width]
    return framed


def search(
    model: nn.Module,
    query: PersonSet,
    gallery: PersonSet,
    *,
    size: tuple[int, int],
    queries: Tensor | None = None,
    top: int = 10,
    progress: Report = ignore,
) -> SearchResult:
    """Rank the split "gallery" of a set, or all its pictures, for queries of the same or another set.

    ``queries`` are indices of ``query``, by default of its split "query", or of all its pictures. People and cameras of two
    sets are compared only if the sets have the same name. ``size`` is the input size of the network (height, width).
    """
    if top < 1:
        raise ValueError(f"top must be >= 1, got {top}")
    if query.name != gallery.name:
        query = replace(query, people=torch.full_like(query.people, UNKNOWN))
    own = _split_or_all(query, "query") if queries is None else queries.cpu()
    others = _split_or_all(gallery, "gallery")

    def features(data: PersonSet, at: Tensor) -> Tensor:
        return finish(extract_at(model, data.images, at, size=size, progress=progress))

    gallery_vectors, query_vectors = features(gallery, others), features(query, own)
    rows, blocks = max(1, CHUNK // len(others)), []
    for at, vectors in zip(own.split(rows), query_vectors.split(rows), strict=True):
        people, cameras = (values.cpu()[at, None] for values in (query.people, query.cameras))
        same = (people == gallery.people.cpu()[others]) & (cameras == gallery.cameras.cpu()[others])
        left_out = same & (people != UNKNOWN) & (people != DISTRACTOR)
        if query.images is gallery.images:
            left_out |= at[:, None] == others
        distances = pairwise(vectors, gallery_vectors).cpu().masked_fill_(left_out, torch.inf)
        blocks.append([values[:, :top] for values in distances.sort(dim=1, stable=True)])
    distances, ranked = map(torch.cat, zip(*blocks, strict=True))
    return SearchResult(query, gallery, own, others[ranked], distances)


def _split_or_all(data: PersonSet, split: str) -> Tensor:
    at = data.select(split).cpu()
    return at if len(at) else torch.arange(len(data))


def search_files(
    model: nn.Module,
    query: StrPath,
    gallery: StrPath,
    *,
    size: tuple[int, int],
    layout: str = "auto",
    top: int = 10,
    progress: Report = ignore,
) -> SearchResult:
    """Rank the pictures of a folder or zip for a query picture, or for all pictures of a folder or zip.

    ``query`` may be a part of the gallery, such as ``people.zip/0001``. People are identified by file names as in
    ``layout``; pictures with other names are searched as well, except in folders that do not belong to the set. A named
    layout must fit the gallery, but not a query from elsewhere. Unreadable pictures are listed in ``skipped`` of the sets.
    """
    run = functools.partial(search, model, size=size, top=top, progress=progress)
    read = functools.partial(read_pictures, layout=layout, size=size, progress=progress)
    read_query = functools.partial(read, query, other_names="unknown")
    part, whole = Path(query).resolve(), Path(gallery).resolve()
    if not part.is_relative_to(whole):
        return run(read_query(), read(gallery))  # an error in the query is reported before a large gallery is read
    pictures, inside = read(gallery), part.relative_to(whole).as_posix()
    if part == whole:
        return run(pictures, pictures)
    queries = [i for i, name in enumerate(pictures.names) if name == inside or name.startswith(f"{inside}/")]
    if not queries:
        reason = next((reason for name, reason in pictures.skipped if name == inside), "")
        if not reason and Path(query).exists():  # in a folder beside the set, such as gt_bbox
            return run(read_query(), pictures)
        raise PictureError(f"{query} holds no readable pictures: {reason or 'check the name'}")
    return run(pictures, pictures, queries=torch.tensor(queries))


def read_pictures(
    path: StrPath,
    layout: str,
    *,
    size: tuple[int, int],
    other_names: Literal["raise", "unknown"] = "raise",
    progress: Report = ignore,
) -> PersonSet:
    """Read a picture, folder or zip. People and cameras are `UNKNOWN` where files are not named as in ``layout``.

    With ``other_names="raise"``, a named layout that does not fit raises PictureError. The person of distractors is
    `DISTRACTOR`. A single picture is recognized by its name and that of its folder, such as ``query`` in Market-1501.
    """
    path = Path(path)
    sources = find_pictures(path)
    folder = path if path.is_dir() or path.suffix.lower() == ".zip" else path.parent
    try:
        found = find_people(folder, layout)
    except PictureError:
        if layout != "auto" and other_names == "raise":
            raise
        found = Found([], [], [])
    row = LAYOUTS.get(found.layout)
    distractors = row.distractors if row else ()
    named = {s.name: s._replace(person=DISTRACTOR) if s.person in distractors else s for s in found.shots}
    # pictures with other names belong to the gallery
    others = ("gallery",) if any("gallery" in shot.splits for shot in found.shots) else ("train",)
    shots = [
        named.get(source.name, Shot(source, UNKNOWN, UNKNOWN, others))
        for source in sources
        if source.name in named or not (row and is_beside(source.name, row))  # such as copies of the query
    ]
    # people of two folders may be different even if the folders have the same name
    name = str(folder.absolute()) if found.layout in UNNAMED else found.layout
    return read_shots(name, shots, size, progress=progress)
