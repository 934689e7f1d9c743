import errno
import os
from pathlib import Path

import pytest
from torn import tear_files

from efdm.files import atomic_write, cache_folder, fit_name


def write(path: Path, data: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(data)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine" / "efdm"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "efdm"


def test_long_names_are_shortened_to_different_names() -> None:
    assert fit_name("sub/photo", ".png") == "sub/photo.png"
    long = [fit_name(f"{folder}/{'ü' * 200}{last}", "__style.png") for folder in ("f" * 300, "f" * 299) for last in "ab"]
    assert len(set(long)) == 4
    for path in long:
        assert path.endswith("__style.png")
        assert all(len(part.encode()) <= 255 for part in path.split("/"))


def test_the_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(str(path)) as file:
        file.write(b"new, and longer")
        file.flush()
        assert path.read_bytes() == b"old"
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"new, and longer")]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError], ids=["interrupted", "disk_full"])
@pytest.mark.parametrize("where", ["write", "replace"])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException], where: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patched:
        if where == "write":
            tear_files(patched, failure)
        else:
            patched.setattr(os, "replace", fail)
        with pytest.raises(failure):
            write(path)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_links_are_preserved(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    for data in (b"first", b"second"):
        write(link, data)
        assert link.is_symlink()
        assert (tmp_path / "elsewhere" / "file").read_bytes() == data


def test_concurrent_writers_do_not_interfere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as one:
        one.write(b"one")
        write(path, b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one"


def test_names_of_maximum_length_get_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write(tmp_path / ("n" * 255))
    assert (tmp_path / ("n" * 255)).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_errors_name_the_file_and_no_folder_is_made(tmp_path: Path) -> None:
    """A run whose folder was deleted must not write to a new folder of the same name."""
    with pytest.raises(OSError, match=r"No space.*settings\.json"), atomic_write(tmp_path / "settings.json"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError, match=r"settings\.json"):
        write(tmp_path / "gone" / "settings.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder'$"):
        write(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]
