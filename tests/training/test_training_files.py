from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torn import tear_files

from efdm.training.files import mend_lines, read_lines, rounded, write_json, write_lines

ONE, TWO, UMLAUT = {"step": 1}, {"step": 2, "loss": 0.5}, {"step": 3, "name": "ü"}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def test_json_is_written_atomically(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(path, {"a": [1, "ü"]})
    assert json.loads(path.read_text()) == {"a": [1, "ü"]}
    assert path.read_bytes().endswith(b"\n")
    tear_files(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        write_json(path, {"b": [2] * 100})
    assert json.loads(path.read_text()) == {"a": [1, "ü"]}


def test_lines_are_written_atomically(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for records in ([TWO, UMLAUT, ONE], [TWO]):
        write_lines(path, records)
        assert read_lines(path) == records
        assert path.read_bytes().endswith(b"\n")
    tear_files(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        write_lines(path, [ONE] * 100)
    assert read_lines(path) == [TWO]


def test_numbers_keep_six_digits() -> None:
    assert [rounded(v) for v in (123456789.0, -1 / 3, 2.5e-9)] == [123457000.0, -0.333333, 2.5e-9]


def test_lines_are_read_in_their_order_without_empty_ones(path: Path) -> None:
    path.write_bytes(lines(TWO) + b"\n \n" + lines(ONE, UMLAUT))
    assert read_lines(path) == [TWO, ONE, UMLAUT]


def test_a_last_line_cut_off_anywhere_is_skipped_and_mended(path: Path) -> None:
    """Even inside a character; a line without its line break is complete."""
    before, last = lines(ONE, TWO), lines(UMLAUT)
    for cut in range(len(last)):
        path.write_bytes(before + last[:cut])
        expected = [ONE, TWO, UMLAUT] if cut == len(last) - 1 else [ONE, TWO]
        assert read_lines(path) == expected
        mend_lines(path)
        with path.open("ab") as file:
            file.write(lines(ONE))
        assert read_lines(path) == [*expected, ONE]


@pytest.mark.parametrize("content", [b"", lines(ONE), lines(ONE, TWO) + b"\n"], ids=["empty", "one", "empty_line"])
def test_complete_files_are_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    mend_lines(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", [b'{"step": 1', b"[1]", b"7", b"\xff\xfe"], ids=["torn", "list", "number", "no_text"])
def test_a_line_that_is_not_a_record_is_reported_by_number(path: Path, line: bytes) -> None:
    path.write_bytes(lines(ONE) + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match=r"records\.jsonl: line 3 is not a record"):
        read_lines(path)


def test_records_need_the_given_keys(path: Path) -> None:
    path.write_bytes(lines(TWO, ONE))
    assert read_lines(path, ("step",)) == [TWO, ONE]
    with pytest.raises(ValueError, match="line 2 is not a record"):
        read_lines(path, ("step", "loss"))
