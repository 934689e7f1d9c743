"""Small synthetic sets for re-identification in the layouts of the published ones.

A person is three colours and a stripe width, and a camera is a brightness and a tint, so people are distinguishable in
every camera, and a small network learns to do so.
"""

import json
from collections.abc import Sequence
from itertools import product
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
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(person_picture(person, camera, shot, size)).save(path, "PNG")


def small_people(
    people: int = 8, cameras: int = 3, shots: int = 2, size: tuple[int, int] = (64, 32), name: str = "small"
) -> PersonSet:
    """Return a set in memory: the first half of the people for training, the others for queries (shot 0) and gallery."""
    shown = list(product(range(1, people + 1), range(1, cameras + 1), range(shots)))
    images = np.stack([person_picture(*at, size) for at in shown]).transpose(0, 3, 1, 2)
    return person_set(name, shown, images, [person <= people // 2 for person, _, _ in shown])


def person_set(name: str, shown: Sequence[tuple[int, int, int]], images: np.ndarray, train: Sequence[bool]) -> PersonSet:
    """Return a set of (person, camera, shot). Pictures that are not for training are queries (shot 0) or gallery."""
    people, cameras, shots = torch.tensor(shown).unbind(1)
    first = torch.tensor(train)
    splits = {"train": first, "query": ~first & (shots == 0), "gallery": ~first & (shots > 0)}
    return PersonSet(
        name=name,
        images=torch.from_numpy(images).contiguous(),
        people=people,
        cameras=cameras,
        names=tuple(f"{p:04d}/c{c}_{s}.png" for p, c, s in shown),
        splits={split: mask.nonzero()[:, 0] for split, mask in splits.items()},
        sources=torch.zeros_like(people),
    )


def make_market(root: Path, people: int = 8, cameras: int = 3, shots: int = 2, size: tuple[int, int] = (64, 32)) -> Path:
    """Write Market-1501's folders: half of the people for training, one query for each other person and camera.

    The gallery holds the other shots, two distractors (person 0) and one junk picture (person -1).
    """
    for person, camera, shot in product(range(1, people + 1), range(1, cameras + 1), range(shots)):
        test = "query" if shot == 0 else "bounding_box_test"
        folder = "bounding_box_train" if person <= people // 2 else test
        name = f"{person:04d}_c{camera}s1_{100 * shot + person:06d}_0{min(shot, 1)}.png"
        write_person(root / folder / name, person, camera, shot, size)
    for shot, name in enumerate(("0000_c1s1_000001_00.png", "0000_c2s1_000002_00.png", "-1_c1s1_000003_00.png")):
        write_person(root / "bounding_box_test" / name, 10_000 + shot, 1, shot, size)
    return root


def make_duke(root: Path, people: int = 4, cameras: int = 2) -> Path:
    """Write DukeMTMC-reID's folders: half of the people for training, a query and a gallery picture of all others."""
    for person, camera, shot in product(range(1, people + 1), range(1, cameras + 1), (0, 1)):
        folder = "bounding_box_train" if person <= people // 2 else ("query", "bounding_box_test")[shot]
        write_person(root / folder / f"{person:04d}_c{camera}_f{person:04d}{shot:03d}.png", person, camera, shot)
    return root


def make_grid(root: Path, people: int = 6, splits: int = 10) -> Path:
    """Write GRID's folders with two distractors, and partitions that train on people 1, 2, 3, then on 2, 3, 4 and so on."""
    from scipy.io import savemat

    for person in range(1, people + 1):
        for camera, folder in ((1, "probe"), (2, "gallery")):
            name = f"{person:04d}_{camera}_25004_107_32_106_{person}.png"
            write_person(root / folder / name, person, camera, 0)
    for shot in range(2):
        write_person(root / "gallery" / f"0000_5_25004_107_32_106_{shot}.png", 10_000 + shot, 5, shot)
    partitions = np.empty((1, splits), dtype=object)
    for split in range(splits):
        train = [(split + at) % people + 1 for at in range(people // 2)]
        partitions[0, split] = {"a": 0, "b": 0, "train": np.array([train])}
    savemat(root / "features_and_partitions.mat", {"trainIdxAll": partitions})
    return root


def make_cuhk01(root: Path, people: int = 4) -> Path:
    """Write CUHK01's folder: two pictures of camera A and two of camera B for each person."""
    for person, shot in product(range(1, people + 1), range(4)):
        write_person(root / "campus" / f"{person:04d}{shot + 1:03d}.png", person, shot // 2, shot)
    return root


def make_cuhk03(root: Path, people: int = 4) -> Path:
    """Write CUHK03's extracted pictures and the lists of both protocols. The last person is of the second camera pair."""
    from scipy.io import savemat

    for kind in ("detected", "labeled"):
        names = []
        for person, view, shot in product(range(1, people + 1), (1, 2), (1, 2)):
            pair, number = (2, 1) if person == people else (1, person)
            names.append(f"{pair}_{number:03d}_{view}_{5 * (view - 1) + shot:02d}.png")
            write_person(root / f"images_{kind}" / names[-1], person, view, shot)
        numbers = np.arange(1, len(names) + 1)
        half = len(names) // 2
        new = {"train_idx": numbers[:half], "query_idx": numbers[half::2], "gallery_idx": numbers[half + 1 :: 2]}
        files = np.array(names, dtype=object)[:, None]
        savemat(root / f"cuhk03_new_protocol_config_{kind}.mat", {"filelist": files, **new})
        rows = [[f"elsewhere/{name}", 0, 0] for name in names]
        tests = [rows[4 * (split % people) :][:4] for split in range(20)]  # one person
        classic = [{"train": [row for row in rows if row not in t], "query": t, "gallery": t} for t in tests]
        (root / f"splits_classic_{kind}.json").write_text(json.dumps(classic))
    return root


def make_msmt17(root: Path, version: str = "V1", people: int = 3) -> Path:
    """Write the folders and lists of MSMT17. In both folders, people are numbered from 0."""
    folders = {"V1": ("train", "test"), "V2": ("mask_train_v2", "mask_test_v2")}[version]
    lists: dict[str, list[str]] = {name: [] for name in ("train", "val", "query", "gallery")}
    for folder, parts in zip(folders, (("train", "val"), ("query", "gallery")), strict=True):
        for person, camera, shot in product(range(people), (1, 15), (0, 1)):
            name = f"{person:04d}/{person:04d}_00{shot}_{camera:02d}_0303morning_000{shot}_{shot}"
            write_person(root / folder / f"{name}.png", person + people * (folder == folders[1]), camera, shot)
            lists[parts[shot]].append(f"{name}.jpg {person}")
    for part, lines in lists.items():
        (root / f"list_{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def make_folders(root: Path, people: int = 4, cameras: int = 2, shots: int = 2) -> Path:
    """Write one folder per person, with names that start with the camera."""
    for person, camera, shot in product(range(1, people + 1), range(1, cameras + 1), range(shots)):
        write_person(root / f"{person:04d}" / f"c{camera}_{shot}.png", person, camera, shot)
    return root
