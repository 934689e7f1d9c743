"""Committed records must keep their identities; otherwise a sweep would repeat their runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from efdm.dg.settings import Settings
from efdm.lab.records import FILE, read_records
from efdm.recognition.settings import identity

COMMITTED = sorted((Path(__file__).parents[2] / "results").rglob("recipe.json"))


@pytest.mark.parametrize("recipe", COMMITTED, ids=lambda path: path.parent.name)
def test_identities_are_unchanged(recipe: Path) -> None:
    records = read_records(recipe.with_name(FILE))
    assert records
    for record in records:
        assert identity(Settings(**record["settings"])) == record["run"]
