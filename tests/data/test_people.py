import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from people import make_folders, make_grid, make_market, small_people
from PIL import Image

from efdm.data import PictureError, memory
from efdm.data.datasets import check_same, describe
from efdm.data.people import PersonSet, join, read_people
from efdm.errors import RunFolderError, SettingError
from efdm.progress import Progress

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
SMALL = (16, 8)


def test_pictures_are_read_at_one_size_with_their_numbers(tmp_path: Path) -> None:
    reports: list[Progress] = []
    data = read_people(make_market(tmp_path, people=4, cameras=2), size=(64, 32), progress=reports.append)
    assert (data.name, data.images.dtype, tuple(data.images.shape)) == ("market1501", torch.uint8, (18, 3, 64, 32))
    assert {split: len(data.select(split)) for split in data.splits} == {"train": 8, "query": 4, "gallery": 6}
    assert data.people[data.select("gallery")].unique().tolist() == [0, 3, 4]
    assert reports[-1].done == reports[-1].total == len(data)
    for index, name in enumerate(data.names):
        person, camera = name.split("/")[1].split("_")[:2]
        assert (int(person), int(camera[1])) == (data.people[index], data.cameras[index])
        assert data.images[index].permute(1, 2, 0).equal(torch.from_numpy(np.array(Image.open(tmp_path / name))))


def test_sizes_that_cannot_be_stored_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folders(tmp_path, people=1)
    monkeypatch.setattr(memory, "available_memory", lambda device: 1000)
    for size, words in {(0, 8): "at least 1 pixel", (16, 8): "4 pictures of 16 x 8 pixels"}.items():
        with pytest.raises(SettingError, match=words):
            read_people(tmp_path, size=size)


def test_damaged_pictures_are_named(tmp_path: Path) -> None:
    make_folders(tmp_path)
    empty, cut = tmp_path / "0001" / "c1_0.png", tmp_path / "0002" / "c1_1.png"
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:200])
    with pytest.raises(PictureError, match=r"2 of 16 pictures.*0001/c1_0\.png is empty.*0002/c1_1\.png is cut"):
        read_people(tmp_path, size=SMALL)


def test_partial_copies_are_read_and_reported(tmp_path: Path) -> None:
    expected = {"6 train": 250, "3 query": 125, "5 gallery": 900}
    notes = [f"{found} pictures, expected {published}" for found, published in expected.items()]
    assert read_people(make_grid(tmp_path), size=SMALL).notes == notes


def test_an_own_set_may_have_the_name_of_a_published_one(tmp_path: Path) -> None:
    make_folders(tmp_path / "grid")
    data = read_people(tmp_path / "grid", size=SMALL)
    assert (data.name, data.notes) == ("grid", [])


def test_a_set_moves_and_describes_itself(device: torch.device) -> None:
    data = small_people()
    moved = data.to(device)
    assert moved.images.device.type == moved.select("query").device.type == moved.sources.device.type == device.type
    assert moved.fingerprint() == data.fingerprint()
    assert "48 pictures of 64 x 32 px, 8 people, 24 train, 12 query, 12 gallery" in repr(data)
    with pytest.raises(ValueError, match="galery"):
        data.select("galery")


def test_fingerprints_change_with_what_they_cover(tmp_path: Path) -> None:
    data = small_people()
    others = [small_people(people=7), small_people(size=(32, 32)), small_people(name="other")]
    assert len({other.fingerprint() for other in [data, *others]}) == 4
    with pytest.raises(RunFolderError, match="numbers of pictures differ"):
        check_same(describe(data), describe(others[0]), tmp_path)
    check_same(describe(data), describe(data), tmp_path)


def test_tensors_of_other_shapes_raise() -> None:
    data = small_people()
    with pytest.raises(ValueError, match="people"):
        PersonSet("x", data.images, data.people[1:], data.cameras, data.names, data.splits, data.sources)
    with pytest.raises(ValueError, match="train, query, gallery"):
        PersonSet("x", data.images, data.people, data.cameras, data.names, {"train": data.select("train")}, data.sources)


def test_joined_sets_keep_people_and_cameras_apart() -> None:
    a, b = small_people(people=4, cameras=2), small_people(people=6, cameras=3)
    both = join([a, b])
    assert (both.name, len(both)) == ("small+small-2", len(a) + len(b))
    assert both.images.equal(torch.cat([a.images, b.images]))
    assert both.sources.tolist() == [0] * len(a) + [1] * len(b)
    assert len(both.people.unique()) == 10
    assert len(both.cameras.unique()) == 5
    assert both.people[: len(a)].equal(a.people)
    for split in both.splits:
        at = both.select(split)
        first, second = at[both.sources[at] == 0], at[both.sources[at] == 1]
        assert first.equal(a.select(split))
        assert (second - len(a)).equal(b.select(split))
    assert both.names[0] == f"small/{a.names[0]}"
    assert both.names[-1] == f"small-2/{b.names[-1]}"


def test_join_of_one_set_or_of_different_sizes() -> None:
    a = small_people()
    assert join([a]) is a
    with pytest.raises(ValueError, match="sizes"):
        join([a, small_people(size=(32, 32))])
    with pytest.raises(ValueError, match="at least one"):
        join([])


@pytest.mark.parametrize(
    ("file", "layout", "pictures", "people", "cameras"),
    [("market1501-train.zip", "market1501", 12_936, 751, 6), ("cuhk01.zip", "cuhk01", 3_884, 971, 2)],
)
def test_real_copies(file: str, layout: str, pictures: int, people: int, cameras: int, tmp_path: Path) -> None:
    from efdm.data.people_layouts import find_people

    if not (SHARED / file).exists():
        pytest.skip(f"{file} is not in ../shared/data")
    found = find_people(SHARED / file)
    assert (found.layout, len(found.shots), found.skipped) == (layout, pictures, [])
    assert len({shot.person for shot in found.shots}) == people
    assert len({shot.camera for shot in found.shots}) == cameras
    with zipfile.ZipFile(SHARED / file) as archive, zipfile.ZipFile(tmp_path / "few.zip", "w") as few:
        for name in archive.namelist()[:8]:
            few.writestr(name, archive.read(name))
    data = read_people(tmp_path / "few.zip")
    assert tuple(data.images.shape) == (8, 3, 256, 128)
    assert data.notes[0] == f"8 train pictures, expected {pictures}"
