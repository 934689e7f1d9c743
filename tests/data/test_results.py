"""Formats and names of results, and errors of single pictures."""

import errno
import pickle
from pathlib import Path

import pytest
import torch

from efdm.data.images import PictureError, file_error
from efdm.data.results import Saving, report_failure
from efdm.errors import OutOfMemoryError, SettingError


def test_a_name_that_is_too_long_needs_a_shorter_one() -> None:
    error = file_error(OSError(errno.ENAMETOOLONG, "File name too long"), "a" * 300)
    assert "choose a shorter name" in str(error)


@pytest.mark.parametrize(("name", "value"), [("format", "gif"), ("quality", 0), ("quality", 101), ("existing", "ask")])
def test_invalid_settings(name: str, value: object) -> None:
    with pytest.raises(SettingError) as caught:
        Saving(**{name: value})  # type: ignore[arg-type]
    assert caught.value.settings == (name,)
    assert "''" not in str(caught.value), "an empty value is no choice to offer"


def test_names_and_existing_results(tmp_path: Path) -> None:
    path = Saving("jpg").path(tmp_path, "a")
    assert path.name == "a.jpg"
    assert Saving().path(tmp_path, "a", "tif").name == "a.tif"
    assert not Saving(existing="skip").skips(path)
    path.touch()
    assert Saving(existing="skip").skips(path)
    assert not Saving().skips(path)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate")],
)
def test_out_of_memory_names_the_picture_and_stops(error: Exception) -> None:
    failed = report_failure("big.png", lambda *_: pytest.fail("continued"))
    with pytest.raises(OutOfMemoryError, match=r"big\.png") as caught, failed:
        raise error
    assert pickle.loads(pickle.dumps(caught.value)).file == "big.png"  # sent from another process


def test_a_full_disk_stops_and_other_errors_do_not() -> None:
    full = file_error(OSError(errno.ENOSPC, "No space left on device"), "out.png")
    with pytest.raises(PictureError, match=r"out\.png.*space"), report_failure("a", lambda *_: pytest.fail("continued")):
        raise full
    failed = dict[str, Exception]()
    with report_failure("a", failed.__setitem__):
        raise PictureError("a is damaged")
    assert list(failed) == ["a"]
