"""Committed records must keep their identities; otherwise a sweep would repeat their runs."""

from pathlib import Path

import pytest

from efdm.lab.records import FILE, read_records
from efdm.lab.sweep import read_study
from efdm.recognition.settings import identity

COMMITTED = sorted((Path(__file__).parents[2] / "results").rglob("recipe.json"))


@pytest.mark.parametrize("recipe", COMMITTED, ids=lambda path: path.parent.name)
def test_identities_are_unchanged(recipe: Path) -> None:
    records = read_records(recipe.with_name(FILE))
    assert records
    settings = read_study(recipe.parent).recipe.kind.settings
    for record in records:
        assert identity(settings(**record["settings"])) == record["run"]
