"""A disk that is full, or a hand on Ctrl-C, while a file is written."""

from __future__ import annotations

import io

import pytest

from efdm import files


def tear_files(monkeypatch: pytest.MonkeyPatch, failure: type[BaseException] = KeyboardInterrupt) -> None:
    """Every file that is written whole or not at all comes to ten bytes."""

    class Torn(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            super().write(data[:10])
            raise failure

    monkeypatch.setattr(files, "open", Torn, raising=False)
