from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sweeps import small_set

from efdm.data.digits import STYLES
from efdm.dg.settings import check
from efdm.lab import Recipe, expand, load_recipe, recipes, run, tables
from efdm.lab.literature import AVERAGE, PACS, PUBLISHED, published
from efdm.lab.recipe import DOCSTRING_FIELDS, FOLDER, described, docstring, docstring_fields, from_description, recipe_path

NAMES = sorted(recipes())
DOMAINS = {"pacs": PACS, "digits": tuple(STYLES), "office_home": ("Art", "Clipart", "Product", "Real World")}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_it_is_and_is_what_it_says(name: str) -> None:
    told = docstring_fields(docstring(FOLDER / f"{name}.py"))
    assert set(told) == set(DOCSTRING_FIELDS)
    assert f"efdm dg run {name} " in told["command"]
    recipe = load_recipe(name)
    assert (recipe.name, recipe.claim, recipe.expected) == (name, told["claim"], told["expected"])
    jobs = expand(recipe, DOMAINS[recipe.data])
    assert str(len(jobs)) == told["runs"].split()[0]
    assert len({planned.run for planned, _ in jobs}) == len(jobs)
    for _, settings in jobs:
        check(settings)


@pytest.mark.parametrize("name", NAMES)
def test_published_numbers_belong_to_a_row_or_to_a_method_that_is_not_trained_here(name: str) -> None:
    recipe = load_recipe(name)
    for line in recipe.published:
        assert set(line.values) <= {*DOMAINS[recipe.data], AVERAGE}
    if recipe.published:
        assert {line.row for line in recipe.published} & set(recipe.rows)


def test_published_averages_are_those_of_their_columns() -> None:
    """A typing error would show. Cells are rounded; and one printed average is 0.1 above that of its cells."""
    whole = [line for lines in PUBLISHED.values() for line in lines if len(line.values) > 1]
    assert len(whole) > 20
    for line in whole:
        assert sum(line.values[d][0] for d in PACS) / 4 == pytest.approx(line.values[AVERAGE][0], abs=0.13), line


def test_unknown_published_numbers_are_told() -> None:
    with pytest.raises(ValueError, match="no published numbers for pacs, leave-one-out, vgg"):
        published("pacs", "leave-one-out", "vgg")


def test_the_short_recipes_share_trainings() -> None:
    def runs(name: str) -> set[str]:
        return {planned.run for planned, _ in expand(load_recipe(name), PACS)}

    main = runs("pacs_leave_one_out_mobilenetv2")
    assert len(main & runs("pacs_order_study_mobilenetv2")) == 48
    assert len(main & runs("pacs_ties_mobilenetv2")) == 12


def test_every_row_of_the_study_of_ties_is_another_computation() -> None:
    """The kernels are stable, so "fast" and "stable" would be the same training twice."""
    assert "efdmix" in load_recipe("pacs_ties_mobilenetv2").rows
    assert "efdmix-stable" not in load_recipe("pacs_ties_mobilenetv2").rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("pacs_leave_one_out_resnet18", ["efdmix", "efdmix-labels, authors' code"]),
        ("pacs_single_source_resnet18", ["mixstyle"]),
        ("pacs_leave_one_out_resnet50", ["efdmix-labels"]),
        ("pacs_single_source_resnet50", ["efdmix"]),
        ("pacs_domainbed_resnet50", ["efdmix-flow"]),
        ("pacs_leave_one_out_mobilenetv2", ["dsu", "mixup"]),
    ],
)
def test_a_recipe_runs_two_steps_with_random_weights(name: str, methods: list[str], tmp_path: Path) -> None:
    pytest.importorskip("timm")
    recipe = load_recipe(name)
    if recipe.protocol == "domainbed":
        recipe = replace(recipe, selections=("oracle",))  # without the pairs of domains
    study = run(
        recipe, small_set(PACS), tmp_path, seeds=[0], methods=methods, domains=["photo"], iterations=2, size=32,
        batch=6, weights="random", device="cpu", precision="fp32", speed="plain",
    )  # fmt: skip
    assert not study.missing
    table = tables(study)[0]
    found = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows if row[1] == "here"}
    assert list(found) == methods
    assert all(0 <= float(row["photo"]) <= 100 for row in found.values())


# --- files -----------------------------------------------------------------------------------------------------------

MINE = '''"""My own.

claim     it runs
expected  50, or
          more
"""
from efdm.lab import Recipe
recipe = Recipe(protocol="leave-one-out", data="mine", methods=["erm"])
'''


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    recipe = load_recipe(path)
    assert (recipe.name, recipe.claim, recipe.expected) == ("mine", "it runs", "50, or more")
    path.write_text("x = 1")
    with pytest.raises(ValueError, match="defines no recipe"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("from efdm.lab", "import fooo\nfrom efdm.lab"), ", line 7, cannot be run as a recipe (ModuleNotFoundError: No"),
        (("methods", "method"), ", line 8, cannot be run as a recipe (TypeError: Recipe.__init__() got an unexpected "
         "keyword argument 'method'; did you mean 'methods'?)"),
        (("methods", "seeds=3, methods"), ", line 8, cannot be run as a recipe (seeds is 3; give a tuple of whole numbers"),
        (("recipe =", "recipe = ="), ", line 8, cannot be run as a recipe (SyntaxError: invalid syntax"),
        (("methods", "settings={'iteration': 3}, methods"), ", line 8, cannot be run as a recipe (a setting='iteration' is"),
    ],
    ids=["import", "argument", "type", "syntax", "setting"],
)  # fmt: skip
def test_what_is_wrong_in_a_recipe_is_told_with_its_file_and_line(
    change: tuple[str, str], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE.replace(*change))
    with pytest.raises(ValueError, match=re.escape(f"{path}{told}")):
        load_recipe(path)


def test_a_wrong_name_is_told_with_the_nearest() -> None:
    assert recipe_path("digits_demo") == recipe_path("digits_demo.py") == FOLDER / "digits_demo.py"
    with pytest.raises(ValueError, match="did you mean 'digits_demo'"):
        load_recipe("digit_demo")
    for path in ("somewhere/digits_demo.py", "mine.py"):
        with pytest.raises(ValueError, match=f"there is no file {path}; give the path"):
            load_recipe(path)


def test_every_packaged_recipe_has_a_line() -> None:
    assert len(NAMES) >= 13
    assert all(line.endswith((".", "?")) for line in recipes().values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "leave-two-out"}, {"methods": ["efdm"]}, {"methods": []}, {"seeds": ()},
        {"settings": {"iteration": 3}}, {"settings": {"seed": 1}}, {"grid": {"rate": (1,)}}, {"columns": {"a": {"lrr": 1}}},
        {"methods": {"erm": {"lrr": 1}}}, {"selections": ("best",)},
        {"scores": ("f1",)}, {"std": "biased"}, {"orders": (("erm", "mixstyle"),)},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_recipe_is_told_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not one of|is called 'efdmix'|at least one"):
        Recipe(**{"protocol": "leave-one-out", "data": "x", "methods": ["erm"], **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"seeds": 3}, "seeds is 3; give a tuple of whole numbers, such as (0, 1, 2, 3, 4)"),
        ({"seeds": (0.5,)}, "seeds is (0.5,); give a tuple of whole numbers"),
        ({"methods": "erm"}, "methods is 'erm'; give a mapping or a list of strings, such as ['erm', 'efdmix']"),
        ({"methods": {"erm": 3}}, "methods is {'erm': 3}; give a mapping"),
        ({"grid": {"lr": 0.1}}, "grid is {'lr': 0.1}; give a mapping, such as {'lr': (0.001, 0.01)}"),
        ({"grid": {"optimizer": "adam"}}, "grid is {'optimizer': 'adam'}; give a mapping, such as"),
        ({"grid": {"lr": (0.1, "fast")}}, "lr is 'fast'; give a number, such as 0.001"),
        ({"orders": ("erm", "dsu")}, "orders is ('erm', 'dsu'); give a tuple of tuples of strings, such as (('erm', "),
        ({"contrasts": (("erm",),)}, "contrasts is (('erm',),); give a tuple of tuples of strings, such as (('mixstyle', "),
        ({"selections": "last"}, "selections is 'last'; give a tuple of strings, such as ('last', "),
        ({"notes": "A sentence."}, "notes is 'A sentence.'; give a tuple of strings"),
        ({"picture_size": None}, "picture_size is None; give a whole number"),
        ({"settings": {"stages": "layer1"}}, "stages is 'layer1'; give a tuple of strings, such as ('stage1', "),
        ({"methods": {"erm": {"lr": None}}}, "lr is None; give a number, such as 0.001"),
        ({"columns": {"a": {"batch": "64"}}}, "batch is '64'; give a whole number, such as 64"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_told_with_its_field_and_what_to_give(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        Recipe(**{"protocol": "leave-one-out", "data": "x", "methods": ["erm"], **wrong})  # type: ignore[arg-type]


def test_lists_and_ranges_are_as_good_as_tuples() -> None:
    plain = Recipe("leave-one-out", "x", ["erm", "dsu"], seeds=(0, 1), orders=(("erm", "dsu"),))
    same = Recipe("leave-one-out", "x", ["erm", "dsu"], seeds=range(2), orders=[["erm", "dsu"]])  # type: ignore[arg-type]
    assert json.dumps(described(same)) == json.dumps(described(plain))


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_comes_back_from_json(name: str) -> None:
    recipe = load_recipe(name)
    back = from_description(json.loads(json.dumps(described(recipe))))
    assert json.dumps(described(back)) == json.dumps(described(recipe))
    assert back.published == recipe.published
    domains = DOMAINS[recipe.data]
    assert [p.run for p, _ in expand(back, domains)] == [p.run for p, _ in expand(recipe, domains)]
