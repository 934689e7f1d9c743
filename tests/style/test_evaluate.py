"""Evaluation: pairs, records, resuming and reports."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training import noise_pictures, slim_vgg

from efdm.data import Source, find_pictures, read_picture
from efdm.errors import DamagedFileError
from efdm.progress import Progress
from efdm.style import report
from efdm.style.candidates import Candidate, unchanged
from efdm.style.evaluate import Pair, evaluate, make_pairs, picture_paths, read_records, stems
from efdm.style.measures import LPIPS_TAPS, NAMES, Metrics
from efdm.style.optimize import OPTIMIZERS


def source(name: str) -> Source:
    return Source(name, name.removesuffix(".png"), Path(name))


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    vgg = slim_vgg(until="relu5_3")
    return Metrics(vgg, [torch.ones(vgg.get_submodule(tap.replace("relu", "conv")).out_channels) for tap in LPIPS_TAPS])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("sets")
    contents, styles = (find_pictures(noise_pictures(folder / n, 3, seed=i)) for i, n in enumerate(("content", "style")))
    return make_pairs(contents, styles)


class Counting:
    """A candidate that gives the content the mean of the style and counts its calls."""

    def __init__(self, label: str = "tint 1", **metadata: object) -> None:
        self.calls = 0
        identity = {"kind": "network", "model": "tint", "method": "none", "strength": 1.0, **metadata}
        self.candidate = Candidate(label, identity, self.run)

    def run(self, content: Tensor, style: Tensor, progress: object) -> Tensor:
        self.calls += 1
        return content - content.mean((2, 3), keepdim=True) + style.mean((2, 3), keepdim=True)


SMALL = {"size": 40, "measured_at": 32}


def test_pairs_in_order_stop_with_the_shorter_set() -> None:
    contents, styles = [source(f"c{i}.png") for i in range(3)], [source(f"s{i}.png") for i in range(5)]
    assert [(c.name, s.name) for c, s in make_pairs(contents, styles)] == [(f"c{i}.png", f"s{i}.png") for i in range(3)]
    assert len(make_pairs(contents, styles, most=2)) == 2


@pytest.mark.parametrize("counts", [(3, 5), (5, 3), (4, 4)])
def test_a_grid_holds_every_pair_once_and_starts_in_order(counts: tuple[int, int]) -> None:
    contents, styles = [source(f"c{i}.png") for i in range(counts[0])], [source(f"s{i}.png") for i in range(counts[1])]
    grid, order = make_pairs(contents, styles, pairing="grid"), make_pairs(contents, styles)
    assert len(grid) == len(set(grid)) == counts[0] * counts[1]
    assert grid[: len(order)] == order
    with pytest.raises(ValueError, match="did you mean 'grid'"):
        make_pairs(contents, styles, pairing="grids")


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a/x.png", "b/x.png", "b/y.png"], ["a_x", "b_x", "y"]),
        (["a/b.png", "a_b.png", "c/b.png"], ["a_b", "a_b-2", "c_b"]),  # folders are joined by an underscore
        (["a/x.png", "B/X.png"], ["a_x", "B_X"]),
        (["a/X.png", "a_x.png", "c/x.png"], ["a_X", "a_x-2", "c_x"]),  # case-insensitive file systems
    ],
)
def test_stems_are_unique(names: list[str], wanted: list[str]) -> None:
    assert list(stems([source(n) for n in names]).values()) == wanted


def test_one_record_per_pair_and_candidate(metrics: Metrics, pairs: list[Pair], tmp_path: Path) -> None:
    reports: list[Progress] = []
    records = evaluate(pairs, [unchanged(), Counting().candidate], metrics, tmp_path, progress=reports.append, **SMALL)
    assert records == read_records(tmp_path)
    assert len(records) == 6
    for record in records:
        assert set(record["measures"]) == set(NAMES)
        assert all(math.isfinite(v) for v in record["measures"].values())
        assert record["environment"]["versions"]["torch"]
        assert record["settings"]["size"] == 40
        assert all(p.is_file() for p in picture_paths(tmp_path, record).values())
    plain, tinted = records[0]["measures"], records[1]["measures"]
    assert plain["lpips"] < 1e-4 < tinted["lpips"]
    assert plain["mean_error"] > tinted["mean_error"]
    assert [(r.done, r.total) for r in reports] == [(i, 6) for i in range(7)]
    # the first image of a candidate is not timed, nor is the unchanged content
    assert [r["seconds"] is not None for r in records] == [False, False, False, True, False, True]


def test_pictures_are_measured_as_they_are_written(metrics: Metrics, pairs: list[Pair], tmp_path: Path) -> None:
    (record,) = evaluate(pairs[:1], [Counting().candidate], metrics, tmp_path, size=40, measured_at=40)
    paths = picture_paths(tmp_path, record)
    output, content, style = (metrics.extract(read_picture(paths[n]).rgb[None]) for n in ("output", "content", "style"))
    for name, value in metrics.measure(output, content, style).items():
        assert record["measures"][name] == pytest.approx(value.item(), rel=2e-3, abs=2e-4), name


@pytest.mark.parametrize("damage", ["none", "half a line", "no newline"])
def test_finished_pairs_are_not_repeated(metrics: Metrics, pairs: list[Pair], tmp_path: Path, damage: str) -> None:
    first, again, path = Counting(), Counting(), tmp_path / "records.jsonl"
    evaluate(pairs[:2], [first.candidate], metrics, tmp_path, **SMALL)
    lines = path.read_bytes()
    path.write_bytes({"none": lines, "half a line": lines + b'{"label": "tint 1", "con', "no newline": lines[:-1]}[damage])
    assert len(read_records(tmp_path)) == 2
    records = evaluate(pairs, [again.candidate], metrics, tmp_path, **SMALL)
    assert records == read_records(tmp_path)
    assert len(path.read_text().splitlines()) == 3
    assert (first.calls, again.calls, len(records)) == (2, 1, 3)


def test_each_size_and_checkpoint_has_its_own_outputs(metrics: Metrics, pairs: list[Pair], tmp_path: Path) -> None:
    sizes = ((40, ""), (36, ""), (40, "abc"))
    for size, weights in sizes:
        evaluate(pairs[:1], [Counting(weights=weights).candidate], metrics, tmp_path, size=size, measured_at=32)
    records = read_records(tmp_path)
    paths = [picture_paths(tmp_path, r) for r in records]
    for (size, _), found in zip(sizes, paths, strict=True):
        assert {min(read_picture(p).rgb.shape[1:]) for p in found.values()} == {size}
    assert len({p["output"] for p in paths}) == len(report.groups(records)) == 3
    (tmp_path / "setups.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"setups\.json: is not JSON"):
        read_records(tmp_path)


def test_a_result_that_is_not_finite_is_refused(metrics: Metrics, pairs: list[Pair], tmp_path: Path) -> None:
    broken = Candidate("broken", {"kind": "network"}, lambda content, style, progress: content * torch.nan)
    with pytest.raises(FloatingPointError, match="broken returned"):
        evaluate(pairs, [broken], metrics, tmp_path, **SMALL)
    assert read_records(tmp_path) == []


def record(
    label: str, pair: int, seconds: float | None = None, strength: float = 1.0, **measures: float
) -> dict[str, object]:
    return {
        "label": label, "candidate": {"kind": "network", "model": label.split()[0], "method": "efdm", "strength": strength},
        "content": f"{pair}", "style": f"{pair}", "files": [f"{pair}", f"{pair}"],
        "settings": {"size": 512, "measured_at": 384, "measures": []}, "pixels": [8, 8], "seconds": seconds,
        "measures": measures, "environment": {"device_name": "a machine", "versions": {"torch": "2"}},
    }  # fmt: skip


def test_the_table_has_means_standard_errors_and_counts() -> None:
    records = [record("a 1", i, s, lpips=v) for i, (s, v) in enumerate([(None, 0.1), (2.0, 0.2), (4.0, 0.3)])]
    records.append(record("b 1", 0, lpips=0.5))
    head, _, first, second, *_ = report.table(records).splitlines()
    assert head == "| candidate | n | content LPIPS, VGG-16 ↓ | s / image |"
    assert first == f"| a 1 | 3 | 0.200 ± {0.1 / 3**0.5:.3f} | 3 |"
    assert second == "| b 1 | 1 | 0.500 | - |"
    assert "a machine, torch 2" in report.table(records)


def test_the_last_record_of_a_pair_counts() -> None:
    (group,) = report.groups([record("a 1", 0, lpips=0.1), record("a 1", 0, lpips=0.9)])
    assert group.values("lpips") == [0.9]


def tint(label: str, **metadata: object) -> dict[str, object]:
    return {
        **record(label, 0, lpips=0.1, style_distance_robust=1.0),
        "candidate": {"kind": "network", "model": "tint", **metadata},
    }


def test_a_sweep_varies_only_the_strength() -> None:
    records = [tint(f"tint {s}", strength=s, weights=w) for w in ("abc", "def") for s in (1.0, 0.5)]
    larger = {**tint("tint 1.0", strength=1.0, weights="abc"), "settings": {"size": 256, "measured_at": 384, "measures": []}}
    found = report.sweeps(report.groups([*records, larger]))
    assert {name: [g.candidate["strength"] for g in groups] for name, groups in found.items()} == {
        "tint (size 512, weights abc)": [0.5, 1.0],
        "tint (size 512, weights def)": [0.5, 1.0],
        "tint (size 256, weights abc)": [1.0],
    }


def test_equal_labels_are_extended_by_the_differing_settings() -> None:
    one, other = (tint("tint 1", strength=1.0) for _ in range(2))
    one["settings"] = {"size": None, "measured_at": 32}
    other["settings"] = {"size": 40, "measured_at": 32}
    text = report.table([one, other])
    assert "| tint 1 (size own) |" in text
    assert "| tint 1 (size 40) |" in text


def test_the_note_describes_the_optimizers() -> None:
    made = {
        **tint("optimizer gatys 500"),
        "candidate": {"kind": "optimizer", "model": "optimizer gatys", "iterations": 500},
    }
    assert OPTIMIZERS["gatys"].title in report.table([made])
    assert "Optimizers" not in report.table([tint("tint 1")])


def test_a_run_is_rendered(metrics: Metrics, pairs: list[Pair], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    steps = Candidate("steps 5", {"kind": "optimizer", "model": "steps", "iterations": 5}, Counting().run)
    strengths = [Counting(f"tint {s}", strength=s).candidate for s in (0.5, 1.0)]
    for size in (40, 36):
        evaluate(pairs[:1], [unchanged(), *strengths, steps], metrics, tmp_path, size=size, measured_at=32)
    written = report.render(tmp_path)
    sweeps = ["strength-tint-none-size-40.png", "strength-tint-none-size-36.png"]
    assert [p.name for p in written] == ["table.md", "tradeoff.png", "candidates.png", *sweeps]
    assert all(p.stat().st_size > 500 for p in written)
    widths = [read_picture(p).rgb.shape[-1] for p in written[2:4]]
    assert widths == [n * (256 + 16) + 16 for n in (6, 4)]  # two inputs, and two candidates in two sizes or two strengths
    assert "unchanged content (size 36)" in (tmp_path / "table.md").read_text()
