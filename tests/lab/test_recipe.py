import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from sweeps import small_set

from efdm.data.digits import STYLES
from efdm.lab import Recipe, expand, load_recipe, recipes, run, tables
from efdm.lab.published import AVERAGE, PACS, PRINTED, PUBLISHED
from efdm.lab.recipe import DOCSTRING_FIELDS, FOLDER, as_json, docstring, docstring_fields, recipe_path
from efdm.models.backbones import build_backbone
from efdm.nn import find_stage

NAMES = sorted(recipes())
DOMAINS = {"pacs": PACS, "digits": tuple(STYLES), "office_home": ("Art", "Clipart", "Product", "Real World")}


_built = cache(lambda backbone: build_backbone(backbone, 2))


@pytest.mark.parametrize("name", NAMES)
def test_packaged_recipes(name: str) -> None:
    """The docstring describes the recipe, settings and stages are valid, published numbers fit, and it survives JSON."""
    described = docstring_fields(docstring(FOLDER / f"{name}.py"))
    assert set(described) == set(DOCSTRING_FIELDS)
    assert f"efdm {'reid' if name.startswith('reid_') else 'dg'} run {name} " in described["command"]
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipes()[name].endswith((".", "?"))
    domains = DOMAINS[recipe.data] if recipe.task == "dg" else tuple(recipe.data.split(", "))
    jobs = expand(recipe, domains)
    assert str(len(jobs)) == described["runs"].split()[0]
    assert len({planned.run for planned, _ in jobs}) == len(jobs)
    for _, settings in jobs:
        settings.check()
    for changes in (recipe.settings, *recipe.rows.values()):
        for stage in changes.get("stages", ()):
            find_stage(_built(recipe.settings["backbone"]), stage)
    columns = {*domains, AVERAGE}
    if recipe.task == "reid":
        columns = {
            f"{recipe.protocol_row.column(cell)} {score}"
            for cell in recipe.protocol_row.cells(domains)
            for score in recipe.scores
        }
    assert all(set(line.values) <= columns for line in recipe.published)
    assert not recipe.published or {line.row for line in recipe.published} & set(recipe.rows)
    back = Recipe(**json.loads(json.dumps(as_json(recipe))))
    assert as_json(back) == as_json(recipe)
    assert back.published == recipe.published
    assert [p.run for p, _ in expand(back, domains)] == [p.run for p, _ in jobs]


KEYS = {
    "pacs_lodo_test_domain": "leave-one-out", "pacs_single_source_train_domain": "single-source",
    "R18": "resnet18", "R50": "resnet50", "": "erm",
    "ManifoldMixup": "manifold-mixup", "Mixup_noLabelInterp": "mixup without mixed targets",
    "MixStyle_rand": "mixstyle", "MixStyle_rand_rerun": "mixstyle", "MixStyle_rand_origPaper": "mixstyle",
    "MixStyle_dom": "mixstyle-labels", "MixStyle_dom_rerun": "mixstyle-labels", "MixStyle_dom_origPaper": "mixstyle-labels",
    "EFDMix_rand": "efdmix", "EFDMix_dom": "efdmix-labels",
}  # fmt: skip
ELSEWHERE = {("leave-one-out", "_l123"): " after layer1-3", ("single-source", "_l12"): " after layer1-2"}


def test_published_numbers_are_those_of_the_paper() -> None:
    """Compare every line, and whether it is printed, with a transcription of the tables; "(c)" marks commented lines."""
    path = Path(__file__).resolve().parents[3] / "shared" / "paper" / "results.json"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    expected = []
    for setting, lines in json.loads(path.read_text()).items():
        protocol = KEYS[setting]
        for label, numbers in lines.items():
            network, _, method = label.removesuffix("(c)").partition("+") if label[:3] in KEYS else ("R18", "", label)
            method = method.removesuffix("(c)")
            place = next((words for (p, end), words in ELSEWHERE.items() if p == protocol and method.endswith(end)), "")
            method = re.sub(r"_l\d+$", "", method)
            if label != "cols":
                row = KEYS.get(method, method.lower()) + place
                values = tuple(tuple(n) if isinstance(n, list) else (n, None) for n in numbers)
                expected.append((protocol, KEYS[network], row, not label.endswith("(c)"), values))
    found = [
        (key[1], key[2], line.row, line.source == PRINTED, tuple(line.values.values()))
        for key, lines in PUBLISHED.items()
        if key[0] == "pacs" and key[1] != "domainbed"
        for line in lines
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_published_averages_match_their_cells() -> None:
    """Cells are rounded, and one printed average is 0.1 above the mean of its cells."""
    complete = [line for lines in PUBLISHED.values() for line in lines if {*PACS, AVERAGE} <= set(line.values)]
    assert len(complete) > 20
    for line in complete:
        assert sum(line.values[d][0] for d in PACS) / 4 == pytest.approx(line.values[AVERAGE][0], abs=0.13), line


SHARED = {
    "pacs_leave_one_out_mobilenetv2": {"pacs_order_study_mobilenetv2": 48, "pacs_ties_mobilenetv2": 12},
    "pacs_leave_one_out_resnet18": {
        "pacs_order_study_resnet18": 100, "pacs_ablation_resnet18": 24, "pacs_noise_ablation_resnet18": 12,
    },
}  # fmt: skip


@pytest.mark.parametrize("main", SHARED)
def test_short_recipes_share_runs(main: str) -> None:
    def runs(name: str) -> set[str]:
        return {planned.run for planned, _ in expand(load_recipe(name), PACS)}

    assert {name: len(runs(main) & runs(name)) for name in SHARED[main]} == SHARED[main]


@pytest.mark.parametrize("depth", [18, 50])
def test_the_chosen_combination_of_a_grid_is_trained_once(depth: int) -> None:
    grid, table = (load_recipe(f"pacs_{name}_resnet{depth}") for name in ("grid", "leave_one_out"))
    assert all(table.settings[name] in values for name, values in grid.grid.items())
    shared = {p.run for p, _ in expand(grid, PACS)} & {p.run for p, _ in expand(table, PACS, seeds=[0], methods=["erm"])}
    assert len(shared) == len(PACS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("pacs_paper_schedule_resnet18", ["efdmix"]),
        ("pacs_single_source_mobilenetv2", ["mixstyle"]),
        ("pacs_domainbed_resnet50", ["efdmix-flow"]),
    ],
)
def test_recipes_run_with_random_weights(name: str, methods: list[str], tmp_path: Path) -> None:
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


MINE = '''"""My own.

claim     it runs
expected  50, or
          more
"""
from efdm.lab import Recipe
recipe = Recipe(protocol="leave-one-out", data="mine", methods=["erm"])
'''


def test_own_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    recipe = load_recipe(path)
    assert recipe.name == "mine"
    assert docstring_fields(docstring(path)) == {"claim": "it runs", "expected": "50, or more"}
    path.write_text("x = 1")
    with pytest.raises(ValueError, match="defines no recipe"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("from efdm.lab", "import fooo\nfrom efdm.lab"), ", line 7: ModuleNotFoundError: No"),
        (("methods", "method"), ", line 8: TypeError: Recipe.__init__() got an unexpected keyword argument 'method'"),
        (("methods", "seeds=3, methods"), ", line 8: seeds: "),
        (("recipe =", "recipe = ="), ", line 8: SyntaxError: invalid syntax"),
        (("methods", "settings={'iteration': 3}, methods"), ", line 8: setting='iteration' is"),
    ],
    ids=["import", "argument", "type", "syntax", "setting"],
)  # fmt: skip
def test_errors_name_file_and_line(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE.replace(*change))
    with pytest.raises(ValueError, match=re.escape(f"{path}{message}")):
        load_recipe(path)


def test_a_misspelled_name_gets_a_suggestion() -> None:
    assert recipe_path("digits_demo") == recipe_path("digits_demo.py") == FOLDER / "digits_demo.py"
    with pytest.raises(ValueError, match="did you mean 'digits_demo'"):
        load_recipe("digit_demo")
    for path in ("somewhere/digits_demo.py", "mine.py"):
        with pytest.raises(ValueError, match=f"file not found: {path}"):
            load_recipe(path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"protocol": "leave-two-out"}, "protocol=.* not one of"), ({"methods": ["efdm"]}, "did you mean 'efdmix'"),
        ({"methods": []}, "at least one"), ({"seeds": ()}, "at least one"), ({"settings": {"iteration": 3}}, "not one of"),
        ({"settings": {"seed": 1}}, "not one of"), ({"grid": {"rate": (1,)}}, "not one of"),
        ({"columns": {"a": {"lrr": 1}}}, "not one of"), ({"methods": {"erm": {"lrr": 1}}}, "not one of"),
        ({"selections": ("best",)}, "selections=.* not one of"), ({"scores": ("f1",)}, "scores=.* not one of"),
        ({"std": "biased"}, "std=.* not one of"), ({"orders": (("erm", "mixstyle"),)}, "not one of"),
        ({"seeds": 3}, "seeds"), ({"methods": {"erm": 3}}, "methods"), ({"contrasts": (("erm",),)}, "contrasts"),
        ({"selections": "last"}, "selections"), ({"grid": {"lr": (0.1, "fast")}}, "lr"),
        ({"columns": {"a": {"batch": None}}}, "batch"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_fields_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{"protocol": "leave-one-out", "data": "x", "methods": ["erm"], **wrong})  # type: ignore[arg-type]


def test_lists_and_ranges_become_tuples() -> None:
    plain = Recipe("leave-one-out", "x", ["erm", "dsu"], seeds=(0, 1), orders=(("erm", "dsu"),))
    same = Recipe("leave-one-out", "x", ["erm", "dsu"], seeds=range(2), orders=[["erm", "dsu"]])  # type: ignore[arg-type]
    assert same == plain
