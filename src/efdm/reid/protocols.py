"""Protocols: which pictures of a set are queries and which are the gallery.

A protocol may have several trials, over which scores are averaged. In sets without a published test split all pictures are
"train", and the protocols other than "official" divide these. State the protocol beside every score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.data.layouts import key
from efdm.data.people import PersonSet
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.training.files import write_json

FORMAT = "efdm re-identification trials 1"


class Trial(NamedTuple):
    """Indices of the queries and of the gallery, sorted, on the CPU."""

    query: Tensor
    gallery: Tensor


class Protocol(NamedTuple):
    """A row of `PROTOCOLS`. ``trials`` returns the trials for a set and a seed."""

    about: str
    trials: Callable[[PersonSet, int], list[Trial]]


def make_trials(data: PersonSet, protocol: str = "official", seed: int = 0) -> list[Trial]:
    """Return the trials of a row of `PROTOCOLS`. They depend on file names, not on the order or format of the files."""
    check_choice("protocol", protocol, PROTOCOLS)
    trials = PROTOCOLS[protocol].trials(data, seed)
    if not all(count_matched(data, trial) for trial in trials):
        message = f"{data.name}: no query of {protocol} has a match in the gallery; expected pictures of the same people"
        raise SettingError(f"{message} from other cameras", "protocol")
    return trials


def count_matched(data: PersonSet, trial: Trial) -> int:
    """Return the number of queries with a match: a gallery picture from another camera. Scores ignore the others."""
    people, cameras = data.people.tolist(), data.cameras.tolist()
    seen: dict[int, set[int]] = {}
    for i in trial.gallery.tolist():
        seen.setdefault(people[i], set()).add(cameras[i])
    return sum(bool(seen.get(people[i], set()) - {cameras[i]}) for i in trial.query.tolist())


def default_protocol(data: PersonSet) -> str:
    """Return "official" for a set with published queries or gallery, otherwise the protocol that fits its cameras."""
    if len(data.select("query")) or len(data.select("gallery")):  # one alone is an incomplete copy
        return "official"
    return "camera-pair" if len(data.cameras.unique()) == 2 else "person-camera"


def official(data: PersonSet, seed: int) -> list[Trial]:
    """Return the published queries and gallery."""
    trial = Trial(data.select("query").cpu(), data.select("gallery").cpu())
    if missing := [name for name, at in zip(("queries", "gallery"), trial, strict=True) if not len(at)]:
        others = " or ".join(name for name in PROTOCOLS if name != "official")
        remedy = f"complete the copy, or choose {others}, which divide the training pictures"
        wrong = "; ".join([f"{data.name} has no published {' and '.join(missing)}", *data.notes])
        raise SettingError(f"{wrong}; {remedy}", "protocol")
    return [trial]


def camera_pair(data: PersonSet, seed: int) -> list[Trial]:
    """Return one trial for each choice of one query per person from the first of two cameras.

    The gallery is the second camera. People with fewer pictures than others have the same query in several trials.
    """
    groups = _by_person_and_camera(data)
    cameras = sorted({camera for _, camera in groups})
    if len(cameras) != 2:
        raise SettingError(f"camera-pair needs pictures of 2 cameras, {data.name} has {len(cameras)}", "protocol")
    shown = [at for (_, camera), at in groups.items() if camera == cameras[0]]
    gallery = _sorted(i for (_, camera), at in groups.items() if camera == cameras[1] for i in at)
    return [Trial(_sorted(at[choice % len(at)] for at in shown), gallery) for choice in range(max(map(len, shown)))]


def person_camera(data: PersonSet, seed: int) -> list[Trial]:
    """Return one trial with a random picture of each person and camera as query and all other pictures as gallery."""

    def draw(person: int, camera: int, index: int) -> tuple[bytes, int]:
        file = PurePosixPath(key(data.names[index])).name
        return sha256(f"{seed}/{person}/{camera}/{file}".encode()).digest(), index

    groups = _by_person_and_camera(data)
    chosen = {min(at, key=partial(draw, *group)) for group, at in groups.items()}
    return [Trial(_sorted(chosen), _sorted(i for at in groups.values() for i in at if i not in chosen))]


def _by_person_and_camera(data: PersonSet) -> dict[tuple[int, int], list[int]]:
    """Return the indices of "train" for each person and camera, in the order of their names."""
    train = data.select("train").tolist()
    if not train:
        raise SettingError(f"{data.name} has no pictures in the split 'train', which the protocol divides", "protocol")
    people, cameras = data.people.tolist(), data.cameras.tolist()
    groups: dict[tuple[int, int], list[int]] = {}
    for i in sorted(train, key=lambda i: key(data.names[i])):
        groups.setdefault((people[i], cameras[i]), []).append(i)
    return groups


def _sorted(indices: Iterable[int]) -> Tensor:
    return torch.tensor(sorted(indices), dtype=torch.int64)


PROTOCOLS: Mapping[str, Protocol] = {
    "official": Protocol("the published queries and gallery", official),
    "camera-pair": Protocol("one query per person from the first of two cameras, the second is the gallery", camera_pair),
    "person-camera": Protocol("a random query for each person and camera, the rest is the gallery", person_camera),
}  # fmt: skip


def write_trials(path: str | Path, trials: Sequence[Trial], data: PersonSet, *, protocol: str, seed: int) -> None:
    """Write the file names of all trials as JSON, with the protocol, the seed and the name of the set."""
    named = [{part: [data.names[i] for i in at.tolist()] for part, at in trial._asdict().items()} for trial in trials]
    write_json(Path(path), {"format": FORMAT, "data": data.name, "protocol": protocol, "seed": seed, "trials": named})
