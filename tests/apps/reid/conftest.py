"""Fixtures for tests of `efdm reid`: small copies of data sets and a trained model."""

from pathlib import Path

import pytest
from people import make_cuhk01, make_grid, make_market
from reid_commands import run, sets, training


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with small copies of Market-1501, GRID and CUHK01."""
    made = tmp_path_factory.mktemp("people")
    make_market(made / "market", people=6, cameras=3, shots=2, size=(32, 16))
    make_grid(made / "grid")
    make_cuhk01(made / "cuhk01")
    return made


@pytest.fixture(scope="session")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of `efdm reid train`."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run(*training(folder, out, *sets(folder, "market", "cuhk01", option="--test")))
    return out
