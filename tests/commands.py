"""The command `efdm` for tests, which are skipped without typer."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from efdm.apps.cli.group import app


def invoke(*words: object, code: int | None = 0, input: bytes | None = None, **environment: str) -> Any:
    """Return the result of a command in a wide terminal, whose exit code must be ``code`` unless that is None."""
    result = CliRunner().invoke(app, [*map(str, words)], input=input, env={"COLUMNS": "300", **environment})
    if isinstance(result.exception, Exception):  # SystemExit is none
        raise result.exception
    assert code is None or result.exit_code == code, result.output
    return result


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
