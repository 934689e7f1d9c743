"""The command line for tests, which are skipped without typer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from efdm.apps.cli.group import app

__all__ = ["app", "files", "runner"]

runner = CliRunner()


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
