"""The temporary folder of the app."""

import tempfile
from pathlib import Path

import pytest

from efdm.apps.web.server import private_folder


def test_folders_of_killed_apps_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with private_folder() as running:
        (killed := tmp_path / "efdm-app-killed").mkdir()
        (killed / ".lock").touch()
        (killed / "upload.png").touch()
        (starting := tmp_path / "efdm-app-starting").mkdir()  # not locked yet
        with private_folder() as other:
            assert {p.name for p in tmp_path.iterdir()} == {running.name, other.name, starting.name}
    assert list(tmp_path.iterdir()) == [starting]
