import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from efdm.data.people import PersonSet
from efdm.errors import SettingError
from efdm.reid.protocols import Trial, default_protocol, make_trials, write_trials

Row = tuple[str, int, int, str]  # name, person, camera, split


def person_set(rows: Sequence[Row], name: str = "made-up") -> PersonSet:
    """Return a set with random pictures."""
    names, people, cameras, splits = zip(*rows, strict=True)
    images = torch.randint(0, 256, (len(rows), 3, 8, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    at = {s: [i for i, own in enumerate(splits) if own == s] for s in ("train", "query", "gallery")}
    parts = {split: torch.tensor(indices, dtype=torch.int64) for split, indices in at.items()}
    sources = torch.zeros(len(rows), dtype=torch.int64)
    return PersonSet(name, images, torch.tensor(people), torch.tensor(cameras), names, parts, sources)


def cuhk01_like(people: int = 5) -> PersonSet:
    """Return pictures 1 and 2 of camera 1 and 3 and 4 of camera 2 for each person."""
    rows = [(f"campus/{p:04}00{n}.png", p, 1 + n // 3, "train") for p in range(1, people + 1) for n in range(1, 5)]
    return person_set(rows, "cuhk01")


def market_like() -> PersonSet:
    """Return training pictures with names as in Market-1501: three of five people by three cameras, one of a sixth."""
    shown = [(p, c, n) for p in range(1, 7) for c in (1, 2, 3) for n in range(3 if p < 6 else 1)]
    return person_set(
        [(f"bounding_box_train/{p:04}_c{c}s1_{n:06}_01.jpg", p, c, "train") for p, c, n in shown], "market1501"
    )


def names(data: PersonSet, at: torch.Tensor) -> list[str]:
    return [data.names[i] for i in at.tolist()]


def assert_equal(trials: list[Trial], others: list[Trial]) -> None:
    assert len(trials) == len(others)
    assert all(torch.equal(a, b) for one, other in zip(trials, others, strict=True) for a, b in zip(one, other, strict=True))


def test_official_splits() -> None:
    data = person_set(
        [("a.jpg", 1, 1, "query"), ("b.jpg", 1, 2, "gallery"), ("c.jpg", 2, 1, "train"), ("d.jpg", 0, 3, "gallery")]
    )
    (trial,) = make_trials(data)
    assert (names(data, trial.query), names(data, trial.gallery)) == (["a.jpg"], ["b.jpg", "d.jpg"])


def test_official_splits_must_exist() -> None:
    with pytest.raises(SettingError, match="person-camera") as error:
        make_trials(market_like())
    assert error.value.settings == ("protocol",)


def test_a_gallery_without_queries_is_an_incomplete_copy() -> None:
    data = person_set([("a.jpg", 1, 1, "train"), ("b.jpg", 1, 2, "train"), ("c.jpg", 2, 1, "gallery")])
    assert default_protocol(data) == "official"  # not a protocol that would score the training pictures
    with pytest.raises(SettingError, match="no published queries; complete the copy"):
        make_trials(data)
    with pytest.raises(SettingError, match=r"no published queries; list_query\.txt not found; complete the copy"):
        make_trials(replace(data, notes=["list_query.txt not found"]))


@pytest.mark.parametrize("protocol", ["official", "person-camera"])
def test_some_query_must_have_a_match_from_another_camera(protocol: str) -> None:
    split = {"official": ("query", "gallery"), "person-camera": ("train", "train")}[protocol]
    data = person_set([(f"{n}.jpg", person, 1, split[n % 2]) for person in (1, 2) for n in (2 * person, 2 * person + 1)])
    with pytest.raises(SettingError, match="other cameras"):
        make_trials(data, protocol)


def test_camera_pair_averages_over_the_query_picture() -> None:
    data = cuhk01_like(3)
    first, second = make_trials(data, "camera-pair")
    assert names(data, first.query) == [f"campus/{p:04}001.png" for p in (1, 2, 3)]
    assert names(data, second.query) == [f"campus/{p:04}002.png" for p in (1, 2, 3)]
    assert torch.equal(first.gallery, second.gallery)
    assert set(data.cameras[first.gallery].tolist()) == {2}
    assert len(first.gallery) == 6


def test_camera_pair_repeats_the_pictures_of_people_with_few() -> None:
    data = cuhk01_like(3)
    keep = [i for i, name in enumerate(data.names) if name != "campus/0002002.png"]
    splits = dict(data.splits) | {"train": torch.tensor(keep)}
    _, second = make_trials(replace(data, splits=splits), "camera-pair")
    assert names(data, second.query) == ["campus/0001002.png", "campus/0002001.png", "campus/0003002.png"]


def test_camera_pair_needs_two_cameras() -> None:
    with pytest.raises(SettingError, match="2 cameras, market1501 has 3"):
        make_trials(market_like(), "camera-pair")


def test_person_camera_draws_one_query_of_each_person_and_camera() -> None:
    data = market_like()
    (trial,) = make_trials(data, "person-camera", seed=3)
    pairs = list(zip(data.people[trial.query].tolist(), data.cameras[trial.query].tolist(), strict=True))
    assert sorted(pairs) == sorted(set(zip(data.people.tolist(), data.cameras.tolist(), strict=True)))
    assert len(pairs) == len(set(pairs))
    assert len({tuple(make_trials(data, "person-camera", seed)[0].query.tolist()) for seed in range(4)}) > 1
    assert sorted([*trial.query.tolist(), *trial.gallery.tolist()]) == list(range(len(data)))


def test_person_camera_draws_for_each_person_and_camera_anew() -> None:
    """Files may have the same names in the folders of all people."""
    data = person_set([(f"{p:04}/c{c}_{n}.jpg", p, c, "train") for p in range(1, 31) for c in (1, 2) for n in range(3)])
    (trial,) = make_trials(data, "person-camera")
    assert {Path(name).name for name in names(data, trial.query)} == {f"c{c}_{n}.jpg" for c in (1, 2) for n in range(3)}


def test_person_camera_does_not_depend_on_the_copy() -> None:
    """A copy in another order, with other extensions and without the outer folder has the same queries."""
    data = market_like()
    rows = zip(data.names, data.people.tolist(), data.cameras.tolist(), strict=True)
    copy = person_set([(name.split("/")[1].replace(".jpg", ".webp"), p, c, "train") for name, p, c in reversed(list(rows))])
    (a,), (b,) = (make_trials(x, "person-camera", 0) for x in (data, copy))
    stems = [{Path(name).stem for name in names(x, t.query)} for x, t in ((data, a), (copy, b))]
    assert stems[0] == stems[1]


def test_unknown_protocol() -> None:
    with pytest.raises(SettingError, match="did you mean 'camera-pair'"):
        make_trials(cuhk01_like(), "camera-pairs")


def test_trials_are_written_as_file_names(tmp_path: Path) -> None:
    data = market_like()
    trials = make_trials(data, "person-camera", 5)
    write_trials(tmp_path / "trials.json", trials, data, protocol="person-camera", seed=5)
    content = json.loads((tmp_path / "trials.json").read_text())
    assert (content["protocol"], content["seed"], content["data"]) == ("person-camera", 5, data.name)
    assert content["trials"] == [
        {part: [data.names[i] for i in at.tolist()] for part, at in trial._asdict().items()} for trial in trials
    ]
