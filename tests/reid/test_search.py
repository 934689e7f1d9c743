import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from people import make_grid, make_market, small_people, write_person

from efdm.data import PictureError
from efdm.reid.evaluate import extract
from efdm.reid.retrieval import pairwise
from efdm.reid.search import FRAMES, UNKNOWN, read_pictures, search, search_files

SIZE = (32, 16)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_market(tmp_path_factory.mktemp("market"), people=6, size=SIZE)


def test_hits_are_the_nearest_pictures_other_than_those_of_the_same_camera(model: torch.nn.Module) -> None:
    data = small_people(size=SIZE)
    found = search(model, data, data, size=SIZE, top=5)
    vectors = extract(model, data.images, size=SIZE)
    for row, query in enumerate(data.select("query").tolist()):
        person, camera = data.people[query], data.cameras[query]
        allowed = [j for j in data.select("gallery").tolist() if (data.people[j], data.cameras[j]) != (person, camera)]
        distances = pairwise(vectors[[query]], vectors[allowed])[0]
        nearest = [allowed[j] for j in distances.argsort()[:5].tolist()]
        hits = found.hits(row)
        assert [hit.name for hit in hits] == [data.names[j] for j in nearest]
        assert [hit.match for hit in hits] == ["same" if data.people[j] == person else "other" for j in nearest]
        torch.testing.assert_close(torch.tensor([hit.distance for hit in hits]), distances.sort().values[:5])


def test_people_of_other_sets_are_unknown(model: torch.nn.Module) -> None:
    data = small_people(size=SIZE)
    found = search(model, replace(data, name="another"), data, size=SIZE, top=100)
    assert {hit.match for row in range(len(found.queries)) for hit in found.hits(row)} == {"unknown"}
    assert len(found.hits(0)) == len(data.select("gallery"))


def test_a_query_is_not_among_its_results(model: torch.nn.Module) -> None:
    data = small_people(people=2, cameras=1, size=SIZE)
    data = replace(data, people=torch.full_like(data.people, UNKNOWN), splits=dict.fromkeys(data.splits, torch.arange(0)))
    found = search(model, data, data, size=SIZE, top=10)
    for row, name in enumerate(data.names):
        assert sorted(hit.name for hit in found.hits(row)) == sorted(set(data.names) - {name})


def test_sheet_frames_show_the_identity(model: torch.nn.Module) -> None:
    data = small_people(size=SIZE)
    found = search(model, data, data, size=SIZE, top=4)
    bare = found.sheet(rows=2, cell=SIZE).rgb
    assert found.sheet(rows=2, cell=SIZE, title="Search").rgb.shape[1] > bare.shape[1]
    colours = {match: torch.tensor(colour)[:, None, None] for match, colour in FRAMES.items()}
    for match, colour in colours.items():
        shown = bool((bare - colour).abs().amax(0).lt(1e-3).sum() >= SIZE[1])
        assert shown == any(hit.match == match for row in (0, len(found.queries) - 1) for hit in found.hits(row))


def test_files_of_a_published_layout(model: torch.nn.Module, market: Path) -> None:
    """The gallery is that of the set; the query may be one of its files, or a file with a name of the same layout."""
    picture = sorted((market / "query").iterdir())[0]
    person = int(picture.name[:4])
    for gallery in (market, market / "bounding_box_test"):
        found = search_files(model, picture, gallery, size=SIZE, top=100)
        hits = found.hits(0)
        names = [Path(hit.name).name for hit in hits]
        assert [hit.match == "same" for hit in hits] == [int(name.split("_")[0]) == person for name in names]
        assert "same" in {hit.match for hit in hits}
        assert not any(name.startswith(picture.name[:7]) for name in names)
        assert "0000_c1s1_000001_00.png" in names


@pytest.mark.parametrize("make", [make_market, make_grid])
def test_distractors_are_not_the_same_person(make: Callable[[Path], Path], model: torch.nn.Module, tmp_path: Path) -> None:
    """Several unknown people share the number 0 of distractors."""
    make(tmp_path)
    query, *others = sorted(file for file in tmp_path.rglob("0000_*"))
    shutil.copy(query, query.with_name(f"{query.stem}1{query.suffix}"))  # from the same camera
    found = search_files(model, query, tmp_path, size=SIZE, top=100)
    matches = {Path(hit.name).name: hit.match for hit in found.hits(0)}
    unknown = {f"{query.stem}1{query.suffix}", *(file.name for file in others)}
    assert {name for name, match in matches.items() if match == "unknown" and name.startswith("0000")} == unknown
    assert "same" not in matches.values()
    known = next(file for file in sorted(tmp_path.rglob("*.png")) if not file.name.startswith(("0000", "-1")))
    found = search_files(model, known, tmp_path, size=SIZE, top=100)
    assert {hit.match for hit in found.hits(0) if Path(hit.name).name.startswith("0000")} == {"other"}


def test_other_versions_of_the_pictures_are_not_searched(model: torch.nn.Module, tmp_path: Path) -> None:
    write_person(make_market(tmp_path, people=2, size=SIZE) / "gt_bbox" / "0002_c1s1_000002_00.png", 2, 1, 0, SIZE)
    found = search_files(model, tmp_path / "query", tmp_path, size=SIZE, top=100)
    assert {hit.name.split("/")[0] for hit in found.hits(0)} == {"bounding_box_test"}
    found = search_files(model, tmp_path / "gt_bbox", tmp_path, size=SIZE, top=100)  # but may be queries
    assert {hit.name.split("/")[0] for hit in found.hits(0)} == {"bounding_box_test"}


def test_files_below_a_folder_or_zip_are_queries(model: torch.nn.Module, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "people.zip", "w") as archive:
        for person in ("ann", "bob"):
            for camera in (1, 2):
                write_person(tmp_path / "one.png", len(person), camera, 0, SIZE)
                archive.write(tmp_path / "one.png", f"{person}/c{camera}_0.png")
    found = search_files(model, tmp_path / "people.zip" / "ann", tmp_path / "people.zip", size=SIZE)
    assert [found.query.names[i] for i in found.queries.tolist()] == ["ann/c1_0.png", "ann/c2_0.png"]
    assert {hit.name: hit.match for hit in found.hits(0)} == {
        "ann/c2_0.png": "same", "bob/c1_0.png": "other", "bob/c2_0.png": "other"
    }  # fmt: skip
    with pytest.raises(PictureError, match="carl"):
        search_files(model, tmp_path / "people.zip" / "carl", tmp_path / "people.zip", size=SIZE)


def test_people_of_two_folders_with_one_name_are_not_compared(model: torch.nn.Module, tmp_path: Path) -> None:
    for place in ("here", "there"):
        write_person(tmp_path / place / "shop" / "ann" / "c1_0.png", 1, 1, 0, SIZE)
    found = search_files(model, tmp_path / "here" / "shop", tmp_path / "there" / "shop", size=SIZE)
    assert [(hit.name, hit.match) for hit in found.hits(0)] == [("ann/c1_0.png", "unknown")]


def test_pictures_without_names_of_a_layout_are_searched(model: torch.nn.Module, tmp_path: Path) -> None:
    for number in range(5):
        write_person(tmp_path / "gallery" / f"img {number}.png", number, 1, 0, SIZE)
    write_person(tmp_path / "query.png", 3, 1, 0, SIZE)
    (tmp_path / "gallery" / "damaged.png").write_bytes(b"no picture")
    found = search_files(model, tmp_path / "query.png", tmp_path / "gallery", size=SIZE, top=3)
    assert found.hits(0)[0].name == "img 3.png"
    assert {hit.match for hit in found.hits(0)} == {"unknown"}
    assert found.distances[0, 0] < 1e-5
    assert replace(found, distances=found.distances - 1).hits(0)[0].distance == 0  # not -0.000
    assert [name for name, _ in found.gallery.skipped] == ["damaged.png"]
    with pytest.raises(PictureError, match=r"damaged\.png holds no readable pictures: .*not a picture"):
        search_files(model, tmp_path / "gallery" / "damaged.png", tmp_path / "gallery", size=SIZE)


def test_a_wrong_query_is_reported_before_the_gallery_is_read(model: torch.nn.Module, tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=r"nobody\.png does not exist"):
        search_files(model, tmp_path / "nobody.png", tmp_path / "gallery", size=SIZE)


def test_a_named_layout_is_required_to_fit(market: Path) -> None:
    with pytest.raises(PictureError, match="cuhk01"):
        read_pictures(market, "cuhk01", size=SIZE)


def test_a_query_from_elsewhere_need_not_be_named_as_in_the_layout_of_the_gallery(
    model: torch.nn.Module, tmp_path: Path
) -> None:
    for person in (1, 2):
        write_person(tmp_path / "gallery" / str(person) / "door_0.png", person, 1, 0, SIZE)
    write_person(tmp_path / "someone" / "photo.png", 2, 1, 0, SIZE)
    for query in (tmp_path / "someone" / "photo.png", tmp_path / "someone"):
        found = search_files(model, query, tmp_path / "gallery", size=SIZE, layout="folders")
        assert [(hit.name, hit.match) for hit in found.hits(0)] == [("2/door_0.png", "unknown"), ("1/door_0.png", "unknown")]
    with pytest.raises(PictureError, match=r"photo\.png.*folders|folders.*photo\.png"):
        search_files(model, tmp_path / "gallery", tmp_path / "someone", size=SIZE, layout="folders")
