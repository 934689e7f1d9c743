from pathlib import Path

import pytest

from efdm.lab import read_study
from efdm.lab.records import RECORDS, append_records, by_run, complete, read_records
from efdm.recognition.settings import identity

COMMITTED = sorted((Path(__file__).parents[2] / "results").rglob("recipe.json"))


def line(run: str, step: int, last: bool = False, loss: float = 0.0) -> dict[str, object]:
    return {"run": run, "step": step, "last": last, "loss": loss}


def test_append_then_read(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [line("a", 1)])
    append_records(path, [line("a", 2, True), line("b", 2, True)])
    assert read_records(path) == [line("a", 1), line("a", 2, True), line("b", 2, True)]


def test_settings_are_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [{**line("a", 1), "settings": {"lr": 0.1, "weights_sha256": "f00"}}])
    assert read_records(path) == [{**line("a", 1), "weights_sha256": "f00"}]


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [line("a", 1, True), line("b", 1, True)])
    whole = path.read_bytes()
    path.write_bytes(whole[: -1 - cut])
    assert read_records(path) == [line("a", 1, True)]
    append_records(path, [line("c", 1, True)])
    assert read_records(path) == [line("a", 1, True), line("c", 1, True)]


def test_attempts_of_a_run_are_not_mixed() -> None:
    """The first complete attempt counts, so files of several machines can be concatenated."""
    torn = [line("a", 1, loss=1.0), line("a", 2, loss=1.0)]
    whole = [line("a", 1, loss=2.0), line("a", 2, True, loss=2.0)]
    again = [line("a", 1, loss=3.0), line("a", 2, True, loss=3.0)]
    for records in (torn + whole + again, whole + torn, whole + again):
        assert [(r["step"], r["loss"]) for r in by_run(records)["a"]] == [(1, 2.0), (2, 2.0)]
    assert not complete(by_run(torn)["a"])


@pytest.mark.parametrize("recipe", COMMITTED, ids=lambda path: path.parent.name)
def test_committed_records_keep_their_identities(recipe: Path) -> None:
    """Otherwise a sweep would repeat their runs."""
    study = read_study(recipe.parent)
    assert {record["run"] for record in read_records(recipe.with_name(RECORDS))} <= {planned.run for planned in study.plan}
    for planned in study.plan:
        assert identity(study.recipe.task_row.settings(**planned.settings)) == planned.run
