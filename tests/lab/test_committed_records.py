"""Records that are kept: a later version must still know their trainings, or a sweep would repeat them."""

from __future__ import annotations

from pathlib import Path

import pytest

from efdm.dg.settings import Settings, identity
from efdm.lab.records import FILE, read_records

KEPT = sorted((Path(__file__).parents[2] / "results").rglob("recipe.json"))


@pytest.mark.parametrize("recipe", KEPT, ids=lambda path: path.parent.name)
def test_their_trainings_have_the_names_that_settings_give_today(recipe: Path) -> None:
    records = read_records(recipe.with_name(FILE))
    assert records
    for record in records:
        assert identity(Settings(**record["settings"])) == record["run"]
