"""Tests of the estimate of memory."""

from pathlib import Path

import pytest

from efdm.data import memory
from efdm.data.memory import available_memory, check_memory
from efdm.errors import SettingError


def test_free_memory_is_within_the_limit_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_memory()
    assert free > 0
    files = [tmp_path / name for name in ("max", "current", "memory.stat")]
    for file, content in zip(files, ("50000000", "40000000", "anon 30000000\ninactive_file 1000000\n"), strict=True):
        file.write_text(content)
    monkeypatch.setattr(memory, "CONTAINERS", [(str(tmp_path), "max", "current")])
    assert available_memory() == 11_000_000
    files[0].write_text("max\n")
    assert available_memory() > 50_000_000


def test_too_much_is_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 2 * 10**9)
    check_memory(2 * 10**9, "pictures")
    with pytest.raises(SettingError, match=r"7 pictures need 3 GB .* 2 GB .* smaller size") as caught:
        check_memory(3 * 10**9, "7 pictures")
    assert caught.value.settings == ("size",)
    with pytest.raises(SettingError, match=r"need 2,107 GB"):
        check_memory(2_107 * 10**9, "14 million pictures")


def test_unknown_devices_are_not_checked() -> None:
    check_memory(10**18, "pictures", "meta")


@pytest.mark.gpu
def test_gpu_memory() -> None:
    free = available_memory("cuda")
    assert free > 0
    with pytest.raises(SettingError, match="GPU memory"):
        check_memory(10 * free, "pictures", "cuda")
