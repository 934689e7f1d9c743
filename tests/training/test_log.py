from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs import lines
from torn import tear_files

from efdm.training.log import Log

PHASES = ("reconstruct", "style")


def records(run: Path) -> list[dict[str, Any]]:
    return lines(run / "log.jsonl")


def test_a_log_keeps_the_lines_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # not installed
    log = Log(tmp_path, phases=PHASES)
    places = [("reconstruct", 1), ("reconstruct", 2), ("style", 1), ("style", 2)]
    for place in places:
        log.write(*place, {"loss": math.pi})
    log.close()
    for count in (3, 2, 1):
        Log(tmp_path, phases=PHASES, keep=places[count - 1]).close()
        lines = records(tmp_path)
        assert [(r["phase"], r["iteration"]) for r in lines] == places[:count]
        assert lines[0]["loss"] == 3.14159
    Log(tmp_path).close()
    assert records(tmp_path) == []


@pytest.fixture
def two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log = Log(tmp_path)
    for iteration in (1, 2):
        log.write("train", iteration, {"loss": 0.5})
    return tmp_path / "log.jsonl"


def test_a_full_disk_on_resume_loses_no_line(two_lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = two_lines.read_bytes()
    tear_files(monkeypatch, OSError)
    with pytest.raises(OSError):  # noqa: PT011
        Log(two_lines.parent, keep=("train", 1))
    assert two_lines.read_bytes() == before


@pytest.mark.parametrize("line", ["{", '{"iteration": 2}'], ids=["torn", "of another kind"])
def test_a_damaged_line_is_reported_by_number(two_lines: Path, line: str) -> None:
    first, second = two_lines.read_text().splitlines(keepends=True)
    two_lines.write_text(f"{first}{line}\n{second}")
    with pytest.raises(ValueError, match=r"log\.jsonl: line 2 is not a record"):
        Log(two_lines.parent, keep=("train", 2))
    two_lines.write_text(f"{first}{second}{line}")  # cut off by a crash
    Log(two_lines.parent, keep=("train", 2)).close()
    assert two_lines.read_text() == first + second


def test_tensorboard_drops_values_after_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # files are read in the order of their names, which contain the second
    seconds = itertools.count(1_800_000_000)
    monkeypatch.setattr(event_file_writer, "time", SimpleNamespace(time=lambda: next(seconds)))

    def shown(phase: str) -> list[tuple[int, float]]:
        events = EventAccumulator(str(tmp_path / "tensorboard" / phase)).Reload()
        return [(e.step, e.value) for e in events.Scalars(f"{phase}/loss")]

    places = [("reconstruct", 4), ("style", 1), ("style", 2), ("style", 3)]
    for keep, loss in ((None, 1.0), (("style", 1), 2.0), (("reconstruct", 4), 3.0), (None, 4.0)):
        log = Log(tmp_path, phases=PHASES, keep=keep)
        for place in places[places.index(keep) + 1 if keep else 0 :]:
            log.write(*place, {"loss": loss})
        log.close()
        expected = {None: [loss] * 3, ("style", 1): [1.0, loss, loss], ("reconstruct", 4): [loss] * 3}[keep]
        assert shown("style") == list(zip((1, 2, 3), expected, strict=True))
        assert shown("reconstruct") == [(4, loss if keep is None else 1.0)]
