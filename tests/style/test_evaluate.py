"""Evaluations: which pairs, one record each, resuming, and what is rendered."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training import noise_pictures, numbered_vgg

from efdm.data import Source, find_pictures, read_picture
from efdm.models import VGG, load_vgg
from efdm.style import report
from efdm.style.evaluate import (
    Pair,
    Progress,
    evaluate,
    make_pairs,
    picture_paths,
    read_records,
    stems,
)
from efdm.style.measures import Lens
from efdm.style.optimise import OPTIMISERS
from efdm.style.ways import Way, untouched


def source(name: str) -> Source:
    return Source(name, name.removesuffix(".png"), Path(name))


@pytest.fixture(scope="module")
def lens() -> Lens:
    vgg = VGG("vgg16", "relu5_3", padding="zeros", pooling="floor")
    return Lens(load_vgg(vgg, numbered_vgg("vgg16")).requires_grad_(False))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("sets")
    contents, styles = (find_pictures(noise_pictures(folder / n, 3, seed=i)) for i, n in enumerate(("content", "style")))
    return make_pairs(contents, styles)


class Counting:
    """A way that mixes the two pictures' means, and remembers how often it was asked."""

    def __init__(self, label: str = "tint 1", **told: object) -> None:
        self.calls = 0
        self.way = Way(label, {"kind": "network", "model": "tint", "method": "none", "strength": 1.0, **told}, self.run)

    def run(self, content: Tensor, style: Tensor, share: object) -> Tensor:
        self.calls += 1
        return content - content.mean((2, 3), keepdim=True) + style.mean((2, 3), keepdim=True)


SMALL = {"size": 40, "seen_at": 32}


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_pairs_in_order_stop_with_the_shorter_set() -> None:
    contents, styles = [source(f"c{i}.png") for i in range(3)], [source(f"s{i}.png") for i in range(5)]
    assert [(c.name, s.name) for c, s in make_pairs(contents, styles)] == [
        ("c0.png", "s0.png"), ("c1.png", "s1.png"), ("c2.png", "s2.png"),
    ]  # fmt: skip
    assert len(make_pairs(contents, styles, most=2)) == 2


@pytest.mark.parametrize("counts", [(3, 5), (5, 3), (4, 4), (1, 2)])
def test_a_grid_has_everything_once_and_begins_like_the_order(counts: tuple[int, int]) -> None:
    contents, styles = [source(f"c{i}.png") for i in range(counts[0])], [source(f"s{i}.png") for i in range(counts[1])]
    grid, order = make_pairs(contents, styles, pairing="grid"), make_pairs(contents, styles)
    assert len(grid) == len(set(grid)) == counts[0] * counts[1]
    assert grid[: len(order)] == order
    with pytest.raises(ValueError, match="did you mean 'grid'"):
        make_pairs(contents, styles, pairing="grids")


def test_names_of_files_are_short_unless_two_would_be_the_same() -> None:
    assert stems([source("a/x.png"), source("b/x.png"), source("b/y.png")]) == {
        "a/x.png": "a_x", "b/x.png": "b_x", "b/y.png": "y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a/b.png", "a_b.png", "c/b.png"], ["a_b", "a_b-2", "c_b"]),  # a folder is joined by what a name may hold
        (["a/x.png", "B/X.png"], ["a_x", "B_X"]),
        (["a/X.png", "a_x.png", "c/x.png"], ["a_X", "a_x-2", "c_x"]),  # one file on some systems
    ],
)
def test_no_two_pictures_get_the_same_name(names: list[str], wanted: list[str]) -> None:
    assert list(stems([source(n) for n in names]).values()) == wanted


# --- a run -----------------------------------------------------------------------------------------------------------


def test_one_record_for_each_pair_and_way(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    told: list[Progress] = []
    records = evaluate(pairs, [untouched(), Counting().way], lens, tmp_path, progress=told.append, **SMALL)
    assert records == read_records(tmp_path)
    assert len(records) == 6
    for record in records:
        assert set(record["measures"]) == set(lens.names)
        assert all(math.isfinite(v) for v in record["measures"].values())
        assert record["environment"]["versions"]["torch"]
        assert record["settings"]["size"] == 40
        assert all(p.is_file() for p in picture_paths(tmp_path, record).values())
    plain, tinted = records[0]["measures"], records[1]["measures"]
    assert plain["likeness"] < 1e-4 < tinted["likeness"]
    assert plain["mean_error"] > tinted["mean_error"]
    assert [t.done for t in told] == [0, 1, 2, 3, 4, 5, 6]
    assert {t.total for t in told} == {6}


def test_the_first_picture_of_a_way_is_not_timed(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    records = evaluate(pairs, [untouched(), Counting().way], lens, tmp_path, **SMALL)
    timed = [r["seconds"] is not None for r in records if r["label"] == "tint 1"]
    assert timed == [False, True, True]
    assert all(r["seconds"] is None for r in records if r["label"] == "content untouched")


def test_pictures_are_measured_as_they_are_written(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    (record,) = evaluate(pairs[:1], [Counting().way], lens, tmp_path, size=40, seen_at=None)
    paths = picture_paths(tmp_path, record)
    inputs = [read_picture(paths[side]).rgb[None] for side in ("content", "style")]
    output = read_picture(paths["output"]).rgb[None]
    found = lens.measure(lens.see(output), *(lens.see(i) for i in inputs))
    for name, value in found.items():
        assert record["measures"][name] == pytest.approx(value.item(), rel=2e-3, abs=2e-4), name


def test_finished_pairs_are_not_repeated(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    first, again = Counting(), Counting()
    evaluate(pairs[:2], [first.way], lens, tmp_path, **SMALL)
    records = evaluate(pairs, [again.way], lens, tmp_path, **SMALL)
    assert (first.calls, again.calls, len(records)) == (2, 1, 3)


def test_other_settings_or_weights_are_measured_again(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    evaluate(pairs[:1], [Counting().way], lens, tmp_path, **SMALL)
    larger, trained = Counting(), Counting(weights="abc")
    evaluate(pairs[:1], [larger.way], lens, tmp_path, size=48, seen_at=32)
    evaluate(pairs[:1], [trained.way], lens, tmp_path, **SMALL)
    assert (larger.calls, trained.calls) == (1, 1)
    assert len(report.groups(read_records(tmp_path))) == 3


def test_pictures_of_other_settings_or_weights_lie_side_by_side(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    sizes = ((40, ""), (36, ""), (40, "abc"))
    for size, weights in sizes:
        evaluate(pairs[:1], [Counting(weights=weights).way], lens, tmp_path, size=size, seen_at=32)
    paths = [picture_paths(tmp_path, r) for r in read_records(tmp_path)]
    for (size, _), found in zip(sizes, paths, strict=True):
        assert {min(read_picture(p).rgb.shape[1:]) for p in found.values()} == {size}
    assert len({p["output"] for p in paths}) == 3


def test_a_run_without_places_for_pictures_is_read_and_goes_on(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    evaluate(pairs[:1], [Counting().way], lens, tmp_path, **SMALL)
    (told,) = read_records(tmp_path)
    now = picture_paths(tmp_path, told)
    content, style = told["files"]
    del told["pictures"]  # as it was before they were recorded
    (tmp_path / "records.jsonl").write_text(json.dumps(told) + "\n")
    before = {
        "content": f"inputs/content/{content}.png", "style": f"inputs/style/{style}.png",
        "output": f"outputs/tint-1/{content}__{style}.png",
    }  # fmt: skip
    for name, place in before.items():
        (tmp_path / place).parent.mkdir(parents=True)
        now[name].rename(tmp_path / place)
    again = Counting()
    records = evaluate(pairs[:1], [again.way], lens, tmp_path, **SMALL)
    assert again.calls == 0
    assert picture_paths(tmp_path, records[0]) == {name: tmp_path / place for name, place in before.items()}
    (made,) = report.sheets(records, tmp_path, cell=32)
    cells = read_picture(made).rgb[..., -32:, :]
    assert all(cells[..., x : x + 30].std() > 0.05 for x in (4, 38, 72))  # none of the three is empty paper


def test_an_interrupted_run_goes_on(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    counting = Counting()
    evaluate(pairs[:1], [counting.way], lens, tmp_path, **SMALL)
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write('{"label": "tint 1", "con')  # the power went
    assert len(read_records(tmp_path)) == 1
    assert len(evaluate(pairs, [counting.way], lens, tmp_path, **SMALL)) == 3
    assert [json.loads(line)["label"] for line in (tmp_path / "records.jsonl").read_text().splitlines()] == ["tint 1"] * 3


def test_a_record_that_lacks_its_end_alone_is_not_made_again(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    counting, path = Counting(), tmp_path / "records.jsonl"
    evaluate(pairs[:2], [counting.way], lens, tmp_path, **SMALL)
    before = counting.calls
    path.write_bytes(path.read_bytes()[:-1])
    assert evaluate(pairs, [counting.way], lens, tmp_path, **SMALL) == read_records(tmp_path)
    assert len(path.read_text().splitlines()) == 3
    alone = Counting()
    evaluate(pairs[2:], [alone.way], lens, tmp_path / "alone", **SMALL)
    assert counting.calls == before + alone.calls


def test_ways_must_have_names_of_their_own(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'tint 1' and 'tint-1' cannot be told apart"):
        evaluate(pairs, [Counting().way, Counting("tint-1").way], lens, tmp_path, **SMALL)


def test_a_picture_that_went_wrong_is_named(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    broken = Way("broken", {"kind": "network"}, lambda content, style, share: content * torch.nan)
    with pytest.raises(FloatingPointError, match="broken made a picture"):
        evaluate(pairs, [broken], lens, tmp_path, **SMALL)
    assert read_records(tmp_path) == []


# --- report ----------------------------------------------------------------------------------------------------------


def record(
    label: str, pair: int, seconds: float | None = None, strength: float = 1.0, **measures: float
) -> dict[str, object]:
    return {
        "label": label, "way": {"kind": "network", "model": label.split()[0], "method": "efdm", "strength": strength},
        "content": f"{pair}", "style": f"{pair}", "files": [f"{pair}", f"{pair}"],
        "settings": {"size": 512, "seen_at": 384, "measures": []}, "pixels": [8, 8], "seconds": seconds,
        "measures": measures, "environment": {"device_name": "a machine", "versions": {"torch": "2"}},
    }  # fmt: skip


def test_the_table_has_means_standard_errors_and_counts() -> None:
    records = [record("a 1", i, s, lpips=v) for i, (s, v) in enumerate([(None, 0.1), (2.0, 0.2), (4.0, 0.3)])]
    records.append(record("b 1", 0, lpips=0.5))
    head, _, first, second, *_ = report.table(records).splitlines()
    assert head == "| way | n | content LPIPS, VGG-16 ↓ | s / picture |"
    assert first == f"| a 1 | 3 | 0.200 ± {0.1 / 3**0.5:.3f} | 3 |"
    assert second == "| b 1 | 1 | 0.500 | - |"
    assert "a machine, torch 2" in report.table(records)


def test_of_a_pair_measured_twice_the_last_counts() -> None:
    (group,) = report.groups([record("a 1", 0, lpips=0.1), record("a 1", 0, lpips=0.9)])
    assert group.values("lpips") == [0.9]


def tint(label: str, **told: object) -> dict[str, object]:
    return {**record(label, 0, lpips=0.1, style_distance_firm=1.0), "way": {"kind": "network", "model": "tint", **told}}


def test_a_sweep_joins_strengths_and_nothing_else() -> None:
    records = [tint(f"tint {s}", strength=s, weights=w) for w in ("abc", "def") for s in (1.0, 0.5)]
    larger = {**tint("tint 1.0", strength=1.0, weights="abc"), "settings": {"size": 256, "seen_at": 384, "measures": []}}
    found = {name: [g.way["strength"] for g in groups] for name, groups in report.sweeps(report.groups([*records, larger]))}
    assert found == {
        "tint (size 512, weights abc)": [0.5, 1.0],
        "tint (size 512, weights def)": [0.5, 1.0],
        "tint (size 256, weights abc)": [1.0],
    }


def test_rows_that_are_called_the_same_are_told_apart_by_what_differs() -> None:
    one, other = (tint("tint 1", strength=1.0) for _ in range(2))
    one["settings"] = {"size": None, "seen_at": 32, "measures": ["lpips", "edge_ssim"]}
    other["settings"] = {"size": 40, "seen_at": 32, "measures": ["likeness", "edge_ssim"]}
    text = report.table([one, other])
    assert "| tint 1 (size own, measures lpips) |" in text
    assert "| tint 1 (size 40, measures likeness) |" in text


def test_the_note_says_what_the_optimisers_are() -> None:
    made = {**tint("optimiser gatys-20 500"), "way": {"kind": "optimiser", "model": "optimiser gatys-20", "iterations": 500}}
    assert "chosen by eye on one portrait" in OPTIMISERS["gatys-20"].title
    assert OPTIMISERS["gatys-20"].title in report.table([made])
    assert "Optimisers" not in report.table([tint("tint 1")])


def test_a_run_of_two_sizes_and_of_ways_without_a_strength_is_rendered(
    lens: Lens, pairs: list[Pair], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    steps = [Way(f"steps {n}", {"kind": "optimiser", "model": "steps", "iterations": n}, Counting().run) for n in (5, 9)]
    strengths = [Counting(f"tint {s}", strength=s).way for s in (0.5, 1.0)]
    for size in (40, 36):
        evaluate(pairs[:1], [untouched(), *strengths, *steps], lens, tmp_path, size=size, seen_at=32)
    names = [p.name for p in report.render(tmp_path)]
    sweeps = ["strength-tint-none-size-40.png", "strength-tint-none-size-36.png"]
    assert names == ["table.md", "tradeoff.png", "ways.png", *sweeps]
    assert read_picture(tmp_path / "ways.png").rgb.shape[-1] == 8 * (256 + 16) + 16  # two inputs, three ways in two sizes
    assert "content untouched (size 36)" in (tmp_path / "table.md").read_text()


def test_a_run_is_rendered(lens: Lens, pairs: list[Pair], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ways = [Counting(f"tint {s}", strength=s).way for s in (0.5, 1.0)]
    evaluate(pairs, [untouched(), *ways], lens, tmp_path, **SMALL)
    written = report.render(tmp_path)
    assert [p.name for p in written] == ["table.md", "tradeoff.png", "ways.png", "strength-tint-none.png"]
    assert all(p.stat().st_size > 500 for p in written)
    widths = [read_picture(p).rgb.shape[-1] for p in written[2:]]
    assert widths[1] - widths[0] == 256 + 16  # one strength more
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no records"):
        report.render(tmp_path / "empty")
    with pytest.raises(ValueError, match="no records"):
        report.table([])
