from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from efdm.errors import RunFolderError
from efdm.training.folder import check_folder, check_unlocked, lock_folder, remove_torn_files


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_starts_in_a_new_folder_and_resumes_in_its_own(resume: bool, tmp_path: Path) -> None:
    started = tmp_path / "started"
    started.mkdir()
    (started / "checkpoint.pt").touch()
    (tmp_path / "file").touch()
    check_folder(started if resume else tmp_path / "new", resume=resume)
    with pytest.raises(RunFolderError) as error:
        check_folder(tmp_path / "new" if resume else started, resume=resume)
    assert error.value.problem == ("not started" if resume else "started")
    with pytest.raises(RunFolderError, match="is a file"):
        check_folder(tmp_path / "file", resume=resume)
    (started / "done").touch()
    with pytest.raises(RunFolderError, match="finished"):
        check_folder(started, resume=resume)


def test_a_locked_folder_refuses_a_second_lock(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    check_unlocked(run)
    assert not run.exists()
    for _ in range(2):
        with lock_folder(run):
            for enter in (lambda: lock_folder(run).__enter__(), lambda: check_unlocked(run)):
                with pytest.raises(RunFolderError, match=str(run)) as error:
                    enter()
                assert error.value.problem == "busy"
            with lock_folder(tmp_path / "other"):
                pass
    with pytest.raises(KeyboardInterrupt), lock_folder(run):
        raise KeyboardInterrupt
    check_unlocked(run)


def test_files_of_an_interrupted_write_are_removed(tmp_path: Path) -> None:
    left, mine = tmp_path / ".0123456789abcdef.tmp", tmp_path / ".notes.tmp"
    left.touch()
    mine.touch()
    remove_torn_files(tmp_path)
    assert not left.exists()
    assert mine.exists()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    read, write = os.pipe()
    if (holder := os.fork()) == 0:
        with lock_folder(tmp_path):
            os.write(write, b"locked")
            time.sleep(60)
        os._exit(0)
    os.read(read, 6)
    with pytest.raises(RunFolderError, match="another process"):
        check_unlocked(tmp_path)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    check_unlocked(tmp_path)
