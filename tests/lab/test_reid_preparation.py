"""Re-identification in the lab: trials, cells, tables, comparisons and published numbers."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from people import small_people
from sweeps import reid_study, small_reid

from efdm.lab import Recipe, accuracy_table, comparison_table, expand, render, tables
from efdm.lab.protocols import Cell
from efdm.lab.published import PUBLISHED
from efdm.lab.reid_preparation import save_trials
from efdm.reid import PersonSets
from efdm.reid.protocols import make_trials

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper" / "efdm-cvpr2022.tex"


def test_only_drawn_queries_are_written(tmp_path: Path) -> None:
    data = PersonSets({"a": small_people(), "b": small_people()})
    (path,) = save_trials(data, {"a": "official", "b": "person-camera"}, tmp_path, seed=2)
    (found,), (expected,) = json.loads(path.read_text())["trials"], make_trials(data["b"], "person-camera", 2)
    assert found["query"] == [data["b"].names[i] for i in expected.query.tolist()]


def test_cells_are_the_pairs_of_sets() -> None:
    recipe = small_reid()
    cells = [planned.cell for planned, _ in expand(recipe, ["a", "b", "c"], seeds=[0], methods=["erm"])]
    assert len(cells) == len(set(cells)) == 6
    assert Cell(("a",), ("b",)) in cells
    back = replace(recipe, protocol="leave-one-out")
    assert recipe.protocol_row.column(cells[0]) == "a → b"
    assert next(p.cell.train for p, _ in expand(back, ["a", "b", "c"], seeds=[0], methods=["erm"])) == ("b", "c")


def test_a_split_by_seed_is_another_run() -> None:
    once, each = small_reid(), small_reid(protocol="cross-dataset, split by seed")
    assert not {p.run for p, _ in expand(once, ["a", "b"])} & {p.run for p, _ in expand(each, ["a", "b"])}


def test_one_table_has_all_scores_of_all_directions() -> None:
    study = reid_study()
    table = accuracy_table(study)
    assert table.head[3:] == [f"{to} {score}" for to in ("a → b", "b → a") for score in ("mAP", "R1", "R5", "R10")]
    assert [row[0] for row in table.rows] == ["erm", "efdmix"]
    assert table.rows[0][3:] == ["30.0 ± 0.6", "40.0 ± 0.6", "50.0 ± 0.6", "60.0 ± 0.6", "5.0 ± 0.6", "15.0 ± 0.6",
                                 "25.0 ± 0.6", "35.0 ± 0.6"]  # fmt: skip
    caption = " ".join(table.caption)
    assert "b official (the published queries and gallery)" in caption
    assert "a person-camera" in caption
    assert "standard error" in caption
    assert "lr 0.01, 5 x lr for the classifier" in caption
    assert "256 x 128 px" in caption
    assert "domain" not in caption
    single = accuracy_table(study, score="R1")
    assert single.head[3:] == ["a → b", "b → a", "average"]
    assert all("$\\to$" in render(table, "latex") for table in tables(study)[:1])


def test_directions_are_compared_one_by_one() -> None:
    """EFDMix gains 2 on a → b, in every seed, and loses 1 on b → a."""
    table = comparison_table(reid_study())
    assert [row[:2] for row in table.rows] == [["a → b: efdmix - erm", "+2.00"], ["b → a: efdmix - erm", "-1.00"]]
    caption = " ".join(table.caption)
    assert "corrected for the 2 comparisons" in caption
    assert "a → b: Order erm < efdmix: supported." in caption
    assert "b → a: Order erm < efdmix: contradicted." in caption


def test_only_the_last_step_can_be_selected() -> None:
    assert small_reid().selections == ("last",)
    with pytest.raises(ValueError, match="oracle"):
        small_reid(selections=("oracle",))
    with pytest.raises(ValueError, match="pooled"):
        small_reid(scores=("pooled",))
    with pytest.raises(ValueError, match="task"):
        Recipe(task="segmentation", protocol="leave-one-out", data="a", methods=["erm"])


def test_published_numbers_are_those_of_the_paper() -> None:
    if not PAPER.is_file():
        pytest.skip(f"needs {PAPER}")
    text = PAPER.read_text().partition("GRID$\\to$MarKet1501")[2].partition("\\end{tabular}")[0]
    lines = [line for line in text.splitlines() if "$\\pm$" in line]
    expected = [[tuple(map(float, pair)) for pair in re.findall(r"([\d.]+)\}?\$\\pm\$([\d.]+)", line)] for line in lines]
    assert [list(line.values.values()) for line in PUBLISHED["market, grid", "cross-dataset", "osnet_x1_0"]] == expected
