"""What tests of `efdm stylize` have in common: the command by itself, and the files it leaves. Skips without typer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from efdm.apps.cli.stylize import stylize

app = typer.Typer()
app.command()(stylize)
runner = CliRunner()


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
