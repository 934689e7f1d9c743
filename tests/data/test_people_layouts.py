import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from people import make_cuhk01, make_cuhk03, make_duke, make_folders, make_grid, make_market, make_msmt17
from trees import touch, zip_folder

from efdm.data import PictureError
from efdm.data.people_layouts import LAYOUTS, find_people
from efdm.data.people_splits import SPLITS, Found
from efdm.errors import SettingError

MAKERS: dict[str, Callable[[Path], Path]] = {
    "market1501": make_market, "dukemtmc": make_duke, "grid": make_grid, "cuhk01": make_cuhk01, "cuhk03": make_cuhk03,
    "msmt17": make_msmt17, "folders": make_folders,
}  # fmt: skip


def rows(found: Found, part: str) -> set[tuple[int, int]]:
    """Return (person, camera) of the pictures of a split."""
    return {(shot.person, shot.camera) for shot in found.shots if part in shot.splits}


def people(found: Found, part: str) -> set[int]:
    return {person for person, _ in rows(found, part)}


@pytest.mark.parametrize("layout", MAKERS)
def test_layouts_are_recognized_in_folders_and_zips_below_other_folders(layout: str, tmp_path: Path) -> None:
    root = MAKERS[layout](tmp_path / "copy")
    found = find_people(root)
    assert found.layout == layout
    assert not found.skipped
    for other in (find_people(zip_folder(root, tmp_path / "copy.zip", "some/where/")), find_people(root, layout)):
        assert [shot[1:] for shot in other.shots] == [shot[1:] for shot in found.shots]
    below = tmp_path / "outer" / "inner"
    shutil.copytree(root, below)
    assert [shot[1:] for shot in find_people(tmp_path / "outer").shots] == [shot[1:] for shot in found.shots]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_examples_match_their_layout_and_no_earlier_one(layout: str, tmp_path: Path) -> None:
    assert find_people(touch(tmp_path, [LAYOUTS[layout].example])).layout == layout.removesuffix("-classic")


def test_market_drops_junk_and_keeps_distractors_in_the_gallery(tmp_path: Path) -> None:
    found = find_people(make_market(tmp_path, people=4, cameras=2))
    assert rows(found, "train") == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert rows(found, "query") == {(3, 1), (3, 2), (4, 1), (4, 2)}
    assert rows(found, "gallery") == {(0, 1), (0, 2), (3, 1), (3, 2), (4, 1), (4, 2)}


def test_market_without_test_folders_and_with_hand_drawn_boxes(tmp_path: Path) -> None:
    make_market(tmp_path)
    for folder in ("query", "bounding_box_test"):
        shutil.rmtree(tmp_path / folder)
    shutil.copytree(tmp_path / "bounding_box_train", tmp_path / "gt_bbox")
    found = find_people(tmp_path)
    assert {shot.splits for shot in found.shots} == {("train",)}
    assert len(found.shots) == 24
    assert not found.skipped
    inside = find_people(tmp_path / "bounding_box_train")
    assert (inside.layout, len(inside.shots)) == ("market1501", 24)


def test_names_of_any_set_in_the_folders_of_market(tmp_path: Path) -> None:
    names = ("bounding_box_train/0001_c1_2.png", "query/0002_c12_1.png", "bounding_box_test/0002_c3_7.png")
    touch(tmp_path / "labeled", names)
    found = find_people(tmp_path)
    assert (found.layout, rows(found, "query")) == ("market-like", {(2, 12)})
    shutil.copytree(tmp_path / "labeled", tmp_path / "detected")
    with pytest.raises(PictureError, match=r"2 sets.*detected.*labeled"):
        find_people(tmp_path)
    assert len(find_people(tmp_path / "detected").shots) == 3


def test_grid_has_ten_splits(tmp_path: Path) -> None:
    make_grid(tmp_path, people=6)
    for split, train in ((0, {1, 2, 3}), (4, {5, 6, 1})):
        found = find_people(tmp_path, split=split)
        assert people(found, "train") == train
        assert people(found, "query") == {1, 2, 3, 4, 5, 6} - train
        assert people(found, "gallery") == {0, 1, 2, 3, 4, 5, 6} - train
        assert {camera for _, camera in rows(found, "train")} == {1, 2}
    with pytest.raises(SettingError, match=r"0 to 9.*10"):
        find_people(tmp_path, split=10)
    (tmp_path / "features_and_partitions.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut short")
    with pytest.raises(PictureError, match=r"features_and_partitions\.mat"):
        find_people(tmp_path)
    (tmp_path / "features_and_partitions.mat").unlink()
    found = find_people(tmp_path)
    assert (people(found, "train"), people(found, "query")) == ({1, 2, 3, 4, 5, 6}, set())
    assert any("features_and_partitions.mat" in note for note in found.notes)


def test_cuhk01_has_two_pictures_of_each_camera(tmp_path: Path) -> None:
    found = find_people(make_cuhk01(tmp_path, people=2))
    assert [(shot.person, shot.camera) for shot in found.shots] == [(p, c) for p in (1, 2) for c in (1, 1, 2, 2)]
    assert len(find_people(tmp_path / "campus").shots) == 8


@pytest.mark.parametrize(
    ("layout", "names", "lost"),
    [
        ("cuhk01", [f"campus/{p:04d}{shot:03d}.png" for p in range(1, 972) for shot in range(1, 5)], "campus/0003002"),
        ("grid", [f"{part}/{p:04d}_1_2_3.jpeg" for part in ("probe", "gallery") for p in range(1, 251)], "probe/0017"),
    ],
)
def test_few_missing_pictures_are_named(layout: str, names: list[str], lost: str, tmp_path: Path) -> None:
    """Where their names follow from the number of people."""
    gone = next(name for name in names if name.startswith(lost))
    touch(tmp_path, names)
    (tmp_path / gone).unlink()
    found = find_people(tmp_path, layout)
    assert found.skipped == [(lost, f"{lost} is missing")]
    assert f"1 picture missing: {lost}" in found.notes
    for name in names[1 : len(names) // 2]:  # now a part of the set
        (tmp_path / name).unlink(missing_ok=True)
    assert not find_people(tmp_path, layout).skipped


def test_cuhk03_numbers_people_within_camera_pairs(tmp_path: Path) -> None:
    found = find_people(make_cuhk03(tmp_path, people=4))
    assert rows(found, "train") == {(1001, 1), (1001, 2), (1002, 1), (1002, 2)}
    assert rows(found, "query") == rows(found, "gallery") == {(1003, 1), (1003, 2), (2001, 3), (2001, 4)}
    assert all(shot.name.startswith("images_detected") for shot in found.shots)
    assert all(len(shot.splits) == 1 for shot in found.shots)
    (tmp_path / found.shots[0].name).unlink()
    partial = find_people(tmp_path)
    assert partial.layout == "cuhk03"  # not the labeled pictures, which are more
    assert partial.skipped == [(found.shots[0].name.split("/")[1], "1_001_1_01.png is listed but missing")]
    labeled = find_people(tmp_path, "cuhk03-labeled")
    assert all(shot.name.startswith("images_labeled") for shot in labeled.shots)
    assert rows(labeled, "query") == rows(found, "query")


@pytest.mark.parametrize("layout", ["cuhk03-classic", "cuhk03-labeled-classic"])
def test_classic_splits_of_cuhk03(layout: str, tmp_path: Path) -> None:
    make_cuhk03(tmp_path)
    found = find_people(tmp_path, layout, split=1)
    assert people(found, "query") == people(found, "gallery") == {1002}
    assert people(found, "train") == {1001, 1003, 2001}
    assert {shot.splits for shot in found.shots} == {("train",), ("query", "gallery")}
    with pytest.raises(SettingError, match="0 to 19"):
        find_people(tmp_path, layout, split=20)


def test_cuhk03_reads_json_lists_of_the_new_protocol_and_refuses_others(tmp_path: Path) -> None:
    expected = find_people(make_cuhk03(tmp_path))
    mat, new = tmp_path / "cuhk03_new_protocol_config_detected.mat", tmp_path / "splits_new_detected.json"
    mat.unlink()
    named = {f"C:\\data\\{Path(shot.name).name}": shot.splits for shot in expected.shots}
    parts = {part: [[name, 7, 0] for name, splits in named.items() if part in splits] for part in SPLITS}
    new.write_text(json.dumps([parts]))
    assert find_people(tmp_path).shots == expected.shots
    for text in ("[]", "{", "[[1, 2]]"):
        new.write_text(text)
        with pytest.raises(PictureError, match=r"splits_new_detected\.json.*download"):
            find_people(tmp_path)


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_msmt17_is_divided_by_its_lists(version: str, tmp_path: Path) -> None:
    found = find_people(make_msmt17(tmp_path, version, people=2))
    assert rows(found, "train") == {(0, 1), (0, 15), (1, 1), (1, 15)}
    assert rows(found, "query") == rows(found, "gallery") == {(10000, 1), (10000, 15), (10001, 1), (10001, 15)}
    assert len(found.shots) == 16  # training and validation, queries and gallery
    assert not found.notes


def test_pictures_missing_from_disk_or_lists_are_named(tmp_path: Path) -> None:
    make_msmt17(tmp_path)
    gone = "0001/0001_000_01_0303morning_0000_0"
    (tmp_path / "test" / f"{gone}.png").unlink()
    train = (tmp_path / "list_train.txt").read_text().splitlines()
    (tmp_path / "list_train.txt").write_text("\n".join(train[1:]))
    found = find_people(tmp_path)
    names = {name for name, _ in found.skipped}
    assert names == {f"{gone}.jpg", "train/0000/0000_000_01_0303morning_0000_0.png"}
    assert any(gone in note for note in found.notes)
    shutil.rmtree(tmp_path / "test")
    without = find_people(tmp_path)
    assert (people(without, "train"), people(without, "query"), len(without.skipped)) == ({0, 1, 2}, set(), 1)
    (tmp_path / "list_query.txt").unlink()
    assert any("list_query.txt" in note for note in find_people(tmp_path).notes)


def test_lists_of_another_set_raise(tmp_path: Path) -> None:
    make_msmt17(tmp_path)
    for name in ("list_query.txt", "list_gallery.txt"):
        (tmp_path / name).write_text("0001/elsewhere.jpg 1\n")
    with pytest.raises(PictureError, match="none of the pictures"):
        find_people(tmp_path)


def test_folders_of_people_with_names_and_splits(tmp_path: Path) -> None:
    touch(tmp_path, ["train/ann/left_1.png", "train/ann/right_1.png", "query/bob/left_1.png", "gallery/bob/right_2.png"])
    with pytest.raises(PictureError, match=r"no layout.*layout 'folders'"):  # cameras without numbers are not recognized
        find_people(tmp_path)
    found = find_people(tmp_path, "folders")
    assert (rows(found, "train"), rows(found, "query"), rows(found, "gallery")) == ({(1, 1), (1, 2)}, {(2, 1)}, {(2, 2)})


@pytest.mark.parametrize("camera", ["c2", "cam2", "camera2"])
def test_numbered_cameras_are_recognized(camera: str, tmp_path: Path) -> None:
    found = find_people(touch(tmp_path, [f"ann/{camera}_7.png", f"bob/{camera}_8.png"]))
    assert (found.layout, len(found.shots)) == ("folders", 2)


def test_pictures_of_cuhk03_must_be_extracted(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=r"cuhk-03\.mat.*images_detected/1_001_1_01\.png"):
        find_people(touch(tmp_path, ["cuhk03_release/cuhk-03.mat", "cuhk03_release/README.md"]))


def test_wrong_names_are_counted_and_named(tmp_path: Path) -> None:
    make_market(tmp_path)
    stray = tmp_path / "query" / "thumb.png"
    stray.touch()
    found = find_people(tmp_path)
    assert [name for name, _ in found.skipped] == ["query/thumb.png"]
    assert any("thumb.png" in note for note in found.notes)
    for file in (tmp_path / "bounding_box_train").iterdir():
        file.rename(file.with_name(f"x{file.name}"))
    with pytest.raises(PictureError, match=r"25 of \d+ pictures.*market1501.*bounding_box_train/x0001") as error:
        find_people(tmp_path)
    assert error.value.settings == ("layout",)


def test_pictures_stored_twice_are_named(tmp_path: Path) -> None:
    make_market(tmp_path)
    file = sorted((tmp_path / "query").iterdir())[0]
    shutil.copy(file, file.with_suffix(".jpg"))
    with pytest.raises(PictureError, match=rf"{file.stem}\.jpg.*{file.stem}\.png"):
        find_people(tmp_path)


def test_people_in_training_and_test_are_reported(tmp_path: Path) -> None:
    make_market(tmp_path)
    (tmp_path / "query" / "0002_c1s1_000777_00.png").touch()
    assert any("training and in test: 2" in note for note in find_people(tmp_path).notes)


def test_other_layouts_and_misspelled_names_get_suggestions(tmp_path: Path) -> None:
    touch(tmp_path, ["photo/dog/056_0001.jpg", "sketch/cat/4_12.png"])  # a set of domains
    with pytest.raises(PictureError, match=r"no layout.*bounding_box_train"):
        find_people(tmp_path)
    with pytest.raises(SettingError, match="market1501"):
        find_people(tmp_path, "market1051")
