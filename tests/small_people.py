"""Small made-up sets of people."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from efdm.data.people import PersonSet

Row = tuple[str, int, int, str]  # name, person, camera, split


def person_set(rows: Sequence[Row], name: str = "made-up", size: tuple[int, int] = (8, 4)) -> PersonSet:
    """Return a set with random pictures."""
    g = torch.Generator().manual_seed(0)
    names, people, cameras, splits = zip(*rows, strict=True)
    return PersonSet(
        name,
        torch.randint(0, 256, (len(rows), 3, *size), dtype=torch.uint8, generator=g),
        torch.tensor(people),
        torch.tensor(cameras),
        names,
        {
            s: torch.tensor([i for i, own in enumerate(splits) if own == s], dtype=torch.int64)
            for s in ("train", "query", "gallery")
        },
        torch.zeros(len(rows), dtype=torch.int64),
    )


def cuhk01_like(people: int = 5) -> PersonSet:
    """Return pictures 1 and 2 of camera 1 and 3 and 4 of camera 2 for each person."""
    rows = [(f"campus/{p:04}00{n}.png", p, 1 + n // 3, "train") for p in range(1, people + 1) for n in range(1, 5)]
    return person_set(rows, "cuhk01")


def market_like(people: int = 6, cameras: int = 3, pictures: int = 3) -> PersonSet:
    """Return the training half of a set with names as in Market-1501; the last person has one picture per camera."""
    rows = [
        (f"bounding_box_train/{p:04}_c{c}s1_{n:06}_01.jpg", p, c, "train")
        for p in range(1, people + 1)
        for c in range(1, cameras + 1)
        for n in range(pictures if p < people else 1)
    ]
    return person_set(rows, "market1501")
