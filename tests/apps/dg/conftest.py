"""Fixtures for tests of `efdm dg`: pictures, a recipe and a trained model."""

from pathlib import Path

import pytest
from dg_commands import RECIPE, draw, run, training


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("mine") / "mine", ("day", "night", "rain"), ("cat", "dog"))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(RECIPE.format(data="mine"))
    return path


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if the command reads a picture."""
    monkeypatch.setattr("efdm.data.loading.read_rgb", lambda *_, **__: pytest.fail("pictures were read"))


@pytest.fixture(scope="session")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of `efdm dg train` with an accuracy above chance."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run(*training(pictures, out, iterations=40, lr=0.1), "--test-domains", "rain")
    return out
