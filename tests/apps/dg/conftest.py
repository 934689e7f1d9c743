"""Pictures, a recipe and a trained model for the commands of `efdm dg`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# the commands are imported inside: without typer, test files that import them are skipped, and this one must not fail


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dg_commands import draw

    return draw(tmp_path_factory.mktemp("mine") / "mine", ("day", "night", "rain"), ("cat", "dog"))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    from dg_commands import RECIPE

    path = tmp_path / "small.py"
    path.write_text(RECIPE.format(data="mine"))
    return path


@pytest.fixture(scope="session")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `efdm dg train`, good enough to be right often."""
    from dg_commands import run, training

    out = tmp_path_factory.mktemp("trained") / "run"
    result = run(*training(pictures, out, iterations=40, lr=0.1), "--test-domains", "rain")
    assert result.exit_code == 0, result.output
    return out
