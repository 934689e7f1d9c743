import csv
import shutil
from pathlib import Path

import pytest
from dg_commands import run as run_dg
from dg_commands import runs_of
from reid_commands import SMALL, run, sets, sweeping
from runs import lines

from efdm.lab import read_study


def test_the_papers_recipe_runs_on_small_copies(folder: Path, tmp_path: Path) -> None:
    """Seed 1 uses split 1 of GRID."""
    out = tmp_path / "out"
    result = run(*sweeping("reid_market_grid_osnet", folder, out, "--seeds", "2"))
    assert "market → grid mAP" in result.output
    assert "33.3 ± 0.4" in result.output  # published
    assert "split of the seed's number" in result.output
    study = read_study(out)
    assert not study.missing
    assert {planned.settings["data"] for planned in study.plan} == {"market, grid, split by seed"}
    assert [planned.settings["iterations"] for planned in study.plan] == [2] * 8
    assert not list(out.glob("trials-*"))


def test_a_recipe_is_run_once_and_its_tables_are_written(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = sweeping("reid_market_cuhk01_osnet", folder, out, "--note", "Drawn [people].")
    result = run(*words)
    assert "4/4" in result.output
    assert "cuhk01 camera-pair" in result.output
    assert "market person-camera" in result.output
    assert "Drawn [people]." in result.output
    assert f"efdm reid table {out}" in result.output
    assert {path.name for path in out.glob("trials-*")} == {"trials-market.json", "trials-cuhk01.json"}
    before = runs_of(out)
    run(*words)
    assert runs_of(out) == before
    run("table", out, "-o", tmp_path / "table.csv")
    head, first, *_ = csv.reader((tmp_path / "table.csv").open())
    assert [name for name in head if name.endswith("mean")] == [
        f"{direction} {score} mean"
        for direction in ("market → cuhk01", "cuhk01 → market")
        for score in ("mAP", "R1", "R5", "R10")
    ]
    record = lines(out / "records.jsonl")[0]
    assert float(first[3]) == pytest.approx(100 * record["test"]["cuhk01"]["mAP"], abs=1e-3)


@pytest.mark.parametrize(
    ("names", "more", "words"),
    [
        (["market"], [], ["market, grid", "got market", "--data"]),
        (["market", "cuhk01"], [], ["market, grid", "--data"]),
        (["market", "grid"], ["--domains", "cuhk01"], ["'cuhk01'", "--domains"]),
        (["market", "grid"], ["--methods", "efdm"], ["'efdmix'"]),
        (["market", "grid"], ["--seeds", "10,"], ["seed 10", "from 0 to 9", "--seeds"]),
        (["market", "grid"], ["--set", "lrate=1"], ["'lrate'", "--set"]),
    ],
    ids=["one set", "other set", "domain", "method", "seed", "setting"],
)
def test_mistakes_are_explained(names: list[str], more: list[str], words: list[str], folder: Path, tmp_path: Path) -> None:
    given = ["run", "reid_market_grid_osnet", *sets(folder, *names), "-o", tmp_path / "out", "--weights", "random"]
    result = run(
        *given, "--device", "cpu", "--set", "backbone=tiny", "--set", "stages=stage1", "--set", "size=32,16", *more, code=2
    )
    for word in words:
        assert word in result.output.splitlines()[-1], result.output
    assert not (tmp_path / "out").exists()


def test_a_copy_without_queries_is_refused_before_training(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "market").mkdir()
    train = folder / "market" / "bounding_box_train"
    shutil.copytree(train, tmp_path / "market" / train.name)
    data = [*sets(tmp_path, "market"), *sets(folder, "grid")]
    result = run("run", "reid_market_grid_osnet", *data, "-o", tmp_path / "out", "--weights", "random", *SMALL, code=2)
    assert "market1501 has no published queries and gallery" in result.output
    assert "--set protocols" in result.output.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_recipes_of_the_other_group_are_refused(tmp_path: Path) -> None:
    assert "efdm dg run digits_demo" in run("run", "digits_demo", "-o", tmp_path / "out", code=2).output
    result = run_dg("run", "reid_market_grid_osnet", "-o", tmp_path / "out", code=2)
    assert "efdm reid run reid_market_grid_osnet" in result.output


def test_lists_have_the_recipes_of_their_group() -> None:
    here, there = run("list").output, run_dg("list").output
    for text in ("reid_market_grid_osnet", "camera-pair", "msmt17", "osnet_x1_0", "efdmix-flow"):
        assert text in here, text
    assert "digits_demo" not in here
    assert "digits_demo" in there
    assert "reid_" not in there
