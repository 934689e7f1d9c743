"""Small made-up sets for re-identification in the layouts of the published ones.

A person is three colours and a stripe width, and a camera is a brightness and a tint, so people can be told apart in
every camera, and a small network learns to do so.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from efdm.data.people import PersonSet


def person_picture(person: int, camera: int, shot: int, size: tuple[int, int] = (64, 32)) -> np.ndarray:
    """Return uint8 ``(h, w, 3)``: a head, a striped shirt and trousers in the colours of the person, seen by the camera."""
    own, view = np.random.default_rng([1, person]), np.random.default_rng([2, camera])
    noise = np.random.default_rng([3, person, camera, shot])
    height, width = size
    shirt, stripe, trousers = own.uniform(0.1, 0.9, (3, 3))
    picture = np.full((height, width, 3), 0.5)
    picture[: height // 5, width // 4 : -width // 4] = (0.8, 0.6, 0.5)
    picture[height // 5 : height * 3 // 5, width // 8 : -width // 8] = shirt
    rows = np.arange(height // 5, height * 3 // 5)
    picture[rows[rows // int(own.integers(2, 6)) % 2 == 0], width // 8 : -width // 8] = stripe
    picture[height * 3 // 5 :, width // 5 : -width // 5] = trousers
    picture = np.roll(picture, tuple(noise.integers(-1, 2, 2)), axis=(0, 1))
    picture = picture * view.uniform(0.85, 1.1) + view.uniform(-0.05, 0.05, 3) + 0.02 * noise.standard_normal(picture.shape)
    return (picture.clip(0, 1) * 255).round().astype(np.uint8)


def write_person(path: Path, person: int, camera: int, shot: int, size: tuple[int, int] = (64, 32)) -> None:
    out = io.BytesIO()
    Image.fromarray(person_picture(person, camera, shot, size)).save(out, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out.getvalue())


def small_people(
    people: int = 8, cameras: int = 3, shots: int = 2, size: tuple[int, int] = (64, 32), name: str = "small"
) -> PersonSet:
    """Return a set in memory: the first half of the people for training, the others for queries (shot 0) and gallery."""
    shown = [(p, c, s) for p in range(1, people + 1) for c in range(1, cameras + 1) for s in range(shots)]
    images = torch.stack([torch.from_numpy(person_picture(*at, size)).permute(2, 0, 1) for at in shown])
    numbers = torch.tensor(shown)
    train = numbers[:, 0] <= people // 2
    splits = {"train": train, "query": ~train & (numbers[:, 2] == 0), "gallery": ~train & (numbers[:, 2] > 0)}
    return PersonSet(
        name=name,
        images=images.contiguous(),
        people=numbers[:, 0],
        cameras=numbers[:, 1],
        names=tuple(f"{p:04d}/c{c}_{s}.png" for p, c, s in shown),
        splits={split: mask.nonzero()[:, 0] for split, mask in splits.items()},
        sources=torch.zeros(len(shown), dtype=torch.int64),
    )


def make_market(root: Path, people: int = 8, cameras: int = 3, shots: int = 2, size: tuple[int, int] = (64, 32)) -> Path:
    """Write Market-1501's folders: half of the people for training, one query for each other person and camera.

    The gallery holds the other shots, two distractors (person 0) and one junk picture (person -1).
    """
    for person in range(1, people + 1):
        for camera in range(1, cameras + 1):
            for shot in range(shots):
                test = "query" if shot == 0 else "bounding_box_test"
                folder = "bounding_box_train" if person <= people // 2 else test
                name = f"{person:04d}_c{camera}s1_{100 * shot + person:06d}_0{min(shot, 1)}.png"
                write_person(root / folder / name, person, camera, shot, size)
    for shot, name in enumerate(("0000_c1s1_000001_00.png", "0000_c2s1_000002_00.png", "-1_c1s1_000003_00.png")):
        write_person(root / "bounding_box_test" / name, 10_000 + shot, 1, shot, size)
    return root
