"""The cache of compiled CUDA code, with a fake compiler."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from torn import tear_files

from efdm.kernels import cuda_launch, nvrtc


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the list of sources that the fake compiler has received."""
    sources: list[str] = []

    def compile_(source: str, options: object) -> bytes:
        sources.append(source)
        return b"binary of " + source.encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(nvrtc, "_compile", compile_)
    monkeypatch.setattr(nvrtc, "_libraries", lambda: (None, SimpleNamespace(nvrtcVersion=lambda *_: 0)))
    return sources


def test_source_is_compiled_once_per_options(compiled: list[str], tmp_path: Path) -> None:
    for options in (["-a"], ["-a"], ["-b"]):
        assert nvrtc._binary("one", options) == b"binary of one"
    assert nvrtc._binary("two", ["-a"]) == b"binary of two"
    assert compiled == ["one", "one", "two"]
    assert {p.suffix for p in (tmp_path / "efdm").iterdir()} == {".cubin"}


def test_unwritable_cache_is_ignored(compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tear_files(monkeypatch, OSError)
    assert nvrtc._binary("one", []) == b"binary of one"
    assert list((tmp_path / "efdm").iterdir()) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert nvrtc._binary("one", []) == b"binary of one"


def test_the_source_of_one_kernel() -> None:
    source = cuda_launch.SOURCE.read_text()
    kernels = nvrtc._KERNEL.findall(source)
    assert {"match_style", "take", "mix_ordered", "move_content", "average_tiles"} <= set(kernels)
    for name in kernels:
        only = nvrtc.only_kernel(source, name)
        assert nvrtc._KERNEL.findall(only) == [name]
        assert only.count("__device__") == source.count("__device__")
        assert only.count("{") == only.count("}")
