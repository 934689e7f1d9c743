import re
from pathlib import Path

import pytest
from PIL import Image
from reid_commands import run


def test_a_sheet_is_drawn_and_the_nearest_pictures_printed(trained: Path, folder: Path, tmp_path: Path) -> None:
    market, out = folder / "market", tmp_path / "sheet.png"
    result = run("search", market / "query", market, "--model", trained, "-o", out, "--top", "3", "--device", "cpu")
    lines = [line for line in result.output.splitlines() if line.startswith("query/")]
    assert len(lines) == len(list((market / "query").iterdir()))
    assert all("bounding_box_test/" in line and " person" in line for line in lines)
    few = Image.open(out).size
    run("search", market / "query", market, "--model", trained, "-o", out, "--top", "6", "--rows", "2", "--device", "cpu")
    many = Image.open(out).size
    assert many[0] > few[0]
    assert many[1] < few[1]


def test_one_picture_in_an_unlabelled_folder(trained: Path, folder: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    query, *others = sorted((folder / "market" / "query").iterdir())
    for number, path in enumerate(others):
        (pictures / f"seen {number}.png").write_bytes(path.read_bytes())
    (pictures / "broken.png").write_bytes(b"")
    (tmp_path / "someone.png").write_bytes(query.read_bytes())
    result = run(
        "search", tmp_path / "someone.png", pictures, "--model", trained, "-o", tmp_path / "s.jpg", "--device", "cpu"
    )
    assert "unknown person" in result.output
    assert re.search(r"skipped 1 picture \(.*broken\.png", result.output)
    assert (tmp_path / "s.jpg").exists()


@pytest.mark.parametrize(
    ("query", "out", "words"),
    [("{market}/query", "sheet.xyz", ".png"), ("{market}/nobody", "sheet.png", "nobody")],
    ids=["extension", "query"],
)
def test_mistakes_are_explained(query: str, out: str, words: str, trained: Path, folder: Path, tmp_path: Path) -> None:
    market = folder / "market"
    found = run(
        "search", query.format(market=market), market, "--model", trained, "-o", tmp_path / out, "--device", "cpu", code=2
    )
    assert words in found.output.splitlines()[-1]
