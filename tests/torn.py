"""Simulate a full disk, or Ctrl-C, while a file is written."""

import io

import pytest

from efdm import files


def tear_files(monkeypatch: pytest.MonkeyPatch, failure: type[BaseException] = KeyboardInterrupt) -> None:
    """Make `atomic_write` fail after ten bytes."""

    class Torn(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            super().write(data[:10])
            raise failure

    monkeypatch.setattr(files, "open", Torn, raising=False)
