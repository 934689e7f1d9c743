import json
import math
import statistics
from functools import partial

import pytest
import sweeps
from sweeps import DOMAINS, SHORT

from efdm.lab import Recipe, expand
from efdm.lab.draws import DRAWN, drawn
from efdm.lab.plan import Planned, merged, plan_as_json, plan_from_json
from efdm.lab.protocols import Cell

small = partial(sweeps.small, seeds=(0, 1))


def test_one_run_per_row_cell_and_seed() -> None:
    plan = [planned for planned, _ in expand(small(), DOMAINS)]
    assert len({planned.place for planned in plan}) == len({planned.run for planned in plan}) == len(plan) == 2 * 4 * 2
    assert [planned.seed for planned in plan] == [0] * 8 + [1] * 8  # seeds vary slowest


def test_one_run_per_combination_of_the_grid() -> None:
    rates = (0.1, 0.001, 0.0010000004)  # close values get different names
    recipe = small(grid={"lr": rates, "iterations": (5, 6)}, seeds=(0,), methods=["erm"])
    plan = [planned for planned, _ in expand(recipe, DOMAINS)]
    assert len({planned.run for planned in plan}) == len(plan) == 6 * 4
    assert {p.hparams for p in plan} == {f"lr {lr}, iterations {n}" for lr in rates for n in (5, 6)}
    with pytest.raises(ValueError, match="lr cannot be overridden"):
        expand(recipe, DOMAINS, lr=0.3)


def test_draws_are_shared_by_methods_and_domains_and_differ_between_seeds() -> None:
    recipe = small(protocol="domainbed", draws=3, methods=["erm", "coral"], settings=SHORT, selections=("oracle",))
    made = expand(recipe, DOMAINS)
    assert len({planned.run for planned, _ in made}) == len(made) == 2 * 3 * 4 * 2
    found = {}
    for planned, settings in made:
        found.setdefault((planned.hparams, planned.seed), set()).add((settings.lr, settings.weight_decay, settings.batch))
    assert all(len(values) == 1 for values in found.values())
    assert found["draw 0", 0] == found["draw 0", 1] == {(5e-5, 0.0, 96)}  # DomainBed's defaults
    assert len({value for values in found.values() for value in values}) == 1 + 2 * 2
    gammas = {p.hparams: s.options["gamma"] for p, s in made if p.row == "coral" and p.seed == 0}
    assert gammas["draw 0"] == 1
    assert len(set(gammas.values())) == 3
    with pytest.raises(ValueError, match="batch, lr cannot be overridden"):
        expand(recipe, DOMAINS, lr=0.3, batch=6)
    with pytest.raises(ValueError, match="a grid or draws"):
        small(grid={"lr": (0.1,)}, draws=2)


def test_draws_have_the_distributions_of_domainbed() -> None:
    cell = Cell(("a", "b", "c"), ("d",))
    made = [drawn(draw, 0, "coral", cell) for draw in range(1, 400)]
    values = {name: [each[name] for each in made] for name in DRAWN} | {"gamma": [each["options"]["gamma"] for each in made]}
    ranges = {"lr": (-5, -3.5), "weight_decay": (-6, -2), "gamma": (-1, 1)}
    for name, (low, high) in ranges.items():
        logarithms = [math.log10(value) for value in values[name]]
        assert low - 0.01 < min(logarithms) < low + 0.1
        assert high - 0.1 < max(logarithms) < high + 0.01
        assert statistics.fmean(logarithms) == pytest.approx((low + high) / 2, abs=0.1 * (high - low))
    assert {min(values["batch"]), max(values["batch"])} == {3 * 8, 3 * 45}


def test_stored_size_is_part_of_the_data_name() -> None:
    """A grid over sizes keeps the stored size; overriding the size replaces it."""
    recipe = small(grid={"size": (16, 24)}, picture_size=32)
    assert {s.data for _, s in expand(recipe, DOMAINS)} == {"noise, kept at 32 px"}
    assert {s.data for _, s in expand(small(picture_size=32), DOMAINS, size=16)} == {"noise"}


def test_cross_validation_adds_pairs_of_domains() -> None:
    recipe = small(protocol="domainbed", selections=("oracle", "leave-one-domain-out cross-validation"), methods=["erm"])
    assert len(expand(recipe, DOMAINS)) == (4 + 6) * 2
    assert len(expand(recipe, DOMAINS, columns=["photo"])) == (1 + 3) * 2


def test_precedence_of_settings() -> None:
    recipe = small(
        settings={**SHORT, "lr": 0.1, "batch": 8, "iterations": 1},
        columns={"art": {"lr": 0.2, "batch": 16}},
        methods={"erm": {"lr": 0.3}, "ours": {"method": "efdmix"}},
    )
    found = {(p.row, p.cell.test[0]): (s.lr, s.batch, s.iterations) for p, s in expand(recipe, DOMAINS, iterations=7)}
    assert found["ours", "photo"] == (0.1, 8, 7)
    assert found["ours", "art"] == (0.2, 16, 7)
    assert found["erm", "art"] == (0.3, 16, 7)


def test_methods_get_their_sampler() -> None:
    recipe = small(methods=["erm", "efdmix-labels"])
    assert {p.row: s.batches for p, s in expand(recipe, DOMAINS)} == {"erm": "uniform", "efdmix-labels": "domains"}
    domainbed = small(protocol="domainbed", methods=["erm"], settings={})
    assert {(s.batches, s.batch, s.domains_per_batch) for _, s in expand(domainbed, DOMAINS)} == {("domains", 96, 3)}


def test_a_subset_can_be_selected() -> None:
    part = expand(small(), DOMAINS, seeds=[5], methods=["erm"], columns=["photo", "art"])
    assert [(p.row, p.cell.test, p.seed) for p, _ in part] == [("erm", ("art",), 5), ("erm", ("photo",), 5)]
    for wrong in ({"methods": ["emr"]}, {"columns": ["foto"]}, {"data": "x"}, {"seed": 3}):
        with pytest.raises(ValueError, match=r"not one of|cannot be overridden"):
            expand(small(), DOMAINS, **wrong)  # type: ignore[arg-type]


def test_plan_survives_json() -> None:
    plan = [p for p, _ in expand(small(), DOMAINS)]
    back = plan_from_json(json.loads(json.dumps(plan_as_json(plan))))
    assert [(p.place, p.run) for p in back] == [(p.place, p.run) for p in plan]
    assert [p.settings["method"] for p in back] == [p.settings["method"] for p in plan]
    assert merged(back, plan, small()) == back


def test_plans_merge_unless_settings_differ() -> None:
    first, second = ([p for p, _ in expand(small(), DOMAINS, seeds=seeds)] for seeds in ([0, 1], [1, 2]))
    assert sorted({p.seed for p in merged(first, second, small())}) == [0, 1, 2]
    assert len(merged(first, second, small())) == 3 * 8
    for place in ({}, {"seeds": [7]}, {"seeds": [7], "methods": ["erm"], "columns": ["art"]}):
        other = [p for p, _ in expand(small(), DOMAINS, iterations=11, **place)]  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="iterations 30, not 11"):
            merged(first, other, small())


@pytest.mark.parametrize(
    "recipe",
    [
        small(protocol="domainbed", settings={}, draws=3, selections=("leave-one-domain-out cross-validation",)),
        small(columns={"photo": {"iterations": 7}, "art": {"iterations": 8}}),
        small(grid={"lr": (0.1, 0.2)}),
    ],
    ids=["draws", "columns", "grid"],
)
def test_the_runs_of_a_recipe_merge_one_by_one(recipe: Recipe) -> None:
    plan = [p for p, _ in expand(recipe, DOMAINS)]
    found: list[Planned] = []
    for planned in plan:
        found = merged(found, [planned], recipe)
    assert found == plan
