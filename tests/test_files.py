from __future__ import annotations

import os
from pathlib import Path

import pytest
from torn import tear_files

from efdm.files import atomic_write, cache_folder


def write(path: Path, data: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(data)


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine" / "efdm"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "efdm"


def test_a_file_takes_its_place_when_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(str(path)) as file:
        file.write(b"new, and longer")
        file.flush()
        assert path.read_bytes() == b"old"
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"new, and longer")]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError], ids=["interrupted", "disk_full"])
@pytest.mark.parametrize("before", [b"old", None], ids=["replacing", "new"])
@pytest.mark.parametrize("where", ["write", "replace", "caller"])
def test_a_failure_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException], before: bytes | None, where: str
) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)

    def fail(*_: object) -> None:
        raise failure

    def write_and_fail() -> None:
        with atomic_write(path) as file:
            file.write(b"a part of the new one")
            fail()

    with monkeypatch.context() as patched:
        if where == "write":
            tear_files(patched, failure)
        if where == "replace":
            patched.setattr(os, "replace", fail)
        with pytest.raises(failure):
            write_and_fail() if where == "caller" else write(path)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_link_stays_a_link_also_where_nothing_is_behind_it_yet(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    for data in (b"first", b"second"):
        write(link, data)
        assert link.is_symlink()
        assert (tmp_path / "elsewhere" / "file").read_bytes() == data


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as one:
        one.write(b"one")
        write(path, b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one"


def test_a_name_may_be_as_long_as_names_may_be(tmp_path: Path) -> None:
    write(tmp_path / ("n" * 255))


def test_others_may_read_it_as_any_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write(tmp_path / "file")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    """A run whose folder was deleted must not begin to fill another."""
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "gone" / "file")
    assert list(tmp_path.iterdir()) == []
