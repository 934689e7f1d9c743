"""Tests of the documents on domain generalization: run their commands, compare their tables and numbers.

`test_documents.py` runs the Python examples of all documents.
"""

import re
import shlex
from pathlib import Path

import pytest
from test_documents import ROOT, blocks, commands, run_commands, table_in, words_of

from efdm.dg import METHODS
from efdm.lab import SELECTIONS, load_recipe, recipes
from efdm.lab.protocols import PROTOCOLS
from efdm.lab.published import PUBLISHED
from efdm.lab.selection import STDS

pytest.importorskip("typer")

GUIDE, PROTOCOL_PAGE, METHOD_PAGE = (
    ROOT / "docs" / name for name in ("guide/domain-generalization.md", "protocols.md", "methods.md")
)
PAGES = (GUIDE, PROTOCOL_PAGE, METHOD_PAGE)
PLAIN = "--device cpu --weights random --iterations 1"
# see `run_commands`
SMALL = {
    "efdm dg demo": "--iterations 1 --lanes 1",
    "efdm dg train": f"{PLAIN} --batch 4 --size 32",
    "efdm dg run digits_demo": "--iterations 1 --methods erm,efdmix",
    "efdm dg run mine.py": f"{PLAIN} --set backbone=tiny --set stages=stage1,stage2 --set size=32 --set batch=4",
    "efdm dg run pacs_": f"{PLAIN} --lanes 1 --set batch=4 --set size=32 --seeds 1 --methods efdmix --domains photo "
    "--copy partial --split own",
    "efdm dg": "",
}


def dg_commands(page: Path) -> list[str]:
    return [line for line in commands(page.read_text()) if line.startswith("efdm dg")]


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with small versions of the pictures and the recipe that the commands name."""
    import torch

    from efdm.data import write_picture
    from efdm.data.pacs import CLASSES, PICTURES

    folder = tmp_path_factory.mktemp("workplace")
    draw = torch.Generator().manual_seed(0)

    def fill(root: Path, classes: tuple[str, ...], count: int) -> None:
        for name in classes:
            for number in range(count):
                write_picture(root / name / f"{number}.png", torch.rand(3, 32, 32, generator=draw))

    for domain in ("painting", "photo", "sketch"):
        fill(folder / "pictures" / domain, ("dog", "horse"), 4)
    for domain in PICTURES:
        fill(folder / "PACS" / domain, CLASSES, 2)
    fill(folder, ("new-pictures",), 2)
    (recipe,) = (block for block in blocks(PROTOCOL_PAGE.read_text(), "python") if "recipe = Recipe(" in block)
    (folder / "mine.py").write_text(recipe)
    return folder


@pytest.mark.slow
def test_commands_run_in_their_order(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    pages = (ROOT / "README.md", GUIDE, PROTOCOL_PAGE)
    run_commands(dict.fromkeys(line for page in pages for line in dg_commands(page)), workplace, SMALL)


def test_the_shards_of_the_page_are_complete() -> None:
    first, second, table = (c for c in dg_commands(PROTOCOL_PAGE) if "runs/first" in c or "runs/second" in c)
    shards = [shlex.split(command)[shlex.split(command).index("--shard") + 1] for command in (first, second)]
    assert shards == ["1/2", "2/2"]
    assert table.startswith("efdm dg table runs/first runs/second")


def test_the_recipe_on_the_page_is_complete(workplace: Path) -> None:
    from efdm.lab import expand
    from efdm.lab.recipe import DOCSTRING_FIELDS, docstring, docstring_fields
    from efdm.models.backbones import build_backbone
    from efdm.nn import find_stage

    recipe = load_recipe(workplace / "mine.py")
    described = docstring_fields(docstring(workplace / "mine.py"))
    assert set(described) == set(DOCSTRING_FIELDS)
    assert described["runs"].startswith(f"{len(expand(recipe, ['a', 'b', 'c']))} ")
    model = build_backbone(recipe.settings["backbone"], 2)
    for stage in recipe.settings["stages"]:
        find_stage(model, stage)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_options_exist(page: Path) -> None:
    from efdm.apps.cli.group import DG, load

    commands = [load(row) for row in DG.values()]
    known = {name for command in commands for option in command.params for name in option.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", page.read_text())) <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_methods_and_recipes_in_the_text_exist(page: Path) -> None:
    words = set(re.findall(r"`([\w-]+)`", prose(page)))
    assert {w for w in words if re.match(r"(efdmix|mixstyle)-", w)} <= set(METHODS)
    named = set(re.findall(r"\b(?:pacs|digits)_\w+", page.read_text()))
    assert {name for name in named if name not in recipes()} <= {"digits_domains"}


def test_the_methods_page_lists_the_table_of_methods() -> None:
    lines = []
    for row in METHODS.values():
        options = ", ".join(f"`{name}={value}`" for name, value in row.options.items()) or "-"
        lines.append(f"| `{row.name}` | {row.about} | {options} | {row.batches} | {row.source} |")
    assert table_in(METHOD_PAGE.read_text(), "methods table") == lines


def test_every_protocol_selection_and_deviation_is_explained() -> None:
    text = PROTOCOL_PAGE.read_text()
    for name in (*PROTOCOLS, *SELECTIONS):
        assert f"| `{name}` |" in text
    for name in STDS:
        assert re.search(rf"`(--std )?{name}`", text), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_accuracies_in_the_text_were_published_or_measured(page: Path) -> None:
    known = {f"{mean:.1f}" for lines in PUBLISHED.values() for line in lines for mean, _ in line.values.values()}
    for measured in (ROOT / "results").glob("pacs*/*/README.md"):
        known |= set(re.findall(r"\d\d\.\d", measured.read_text()))
    text = re.sub(r"<!-- (.+): made by benchmarks.*?<!-- end of \1 -->", "", prose(page), flags=re.DOTALL)
    assert set(re.findall(r"(?<![\d.])\d\d\.\d(?![\d.])", text)) <= known


def test_deviations_in_the_text_are_the_largest_published_ones() -> None:
    def largest(protocol: str) -> float:
        lines = [line for key, lines in PUBLISHED.items() if key[1] == protocol for line in lines]
        return max(std or 0 for line in lines for _, std in line.values.values())

    words = f"reach {largest('leave-one-out')} points with three training domains and {largest('single-source')} with"
    assert words in words_of("docs/guide/domain-generalization.md")
