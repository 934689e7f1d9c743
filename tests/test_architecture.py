"""Which packages may import which, and what importing costs."""

import ast
import re
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import efdm
from efdm.models import allow_torchvision

ROOT = Path(efdm.__file__).parent
BELOW = {"kernels", "ops", "nn", "models", "data", "training"}
MAY_IMPORT: dict[str, set[str]] = {
    "kernels": set(),
    "ops": {"kernels"},
    "nn": {"kernels", "ops"},
    "models": {"ops"},
    "data": {"ops"},
    "training": {"ops"},
    "recognition": BELOW,
    "style": BELOW,
    "dg": BELOW | {"recognition"},
    "reid": BELOW | {"recognition"},
    "lab": BELOW | {"recognition", "dg", "reid"},
    "integrations": BELOW | {"style"},
    "apps": BELOW | {"style", "recognition", "dg", "reid", "lab"},
    "recipes": BELOW | {"style", "dg", "reid", "lab"},
}


def packages_imported(file: Path) -> list[tuple[int, str]]:
    """Return line numbers and packages of all imports from ``efdm``, including those inside functions."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "efdm" and len(parts) > 1 and parts[1] in MAY_IMPORT:
                found.append((node.lineno, parts[1]))
    return found


def test_the_document_names_every_module() -> None:
    """Except for commands, analyses and recipes, which the document describes together."""
    document = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text()
    for row in re.findall(r"^\| `.*", document, re.MULTILINE):
        folder = ROOT / row.split("`")[1]
        if not folder.is_dir():
            continue
        named = set(re.findall(r"`([\w/]+\.(?:py|cu|html))`", row))
        assert not [name for name in named if not (folder / name).is_file()], folder.name
        if folder.name not in ("apps", "recipes"):
            assert {path.name for path in folder.glob("*.py")} - {"__init__.py"} <= named, folder.name


def test_every_package_has_a_row() -> None:
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_lower_packages_do_not_import_higher_ones(package: str) -> None:
    offences = [
        f"{file.relative_to(ROOT.parent)}:{line} imports efdm.{other}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, other in packages_imported(file)
        if other != package and other not in MAY_IMPORT[package]
    ]
    assert offences == []


def test_tasks_are_independent_and_recipes_are_not_imported() -> None:
    """Guard the table itself: a row widened by mistake would allow every import."""
    tasks = {"style", "dg", "reid"}
    assert not any(MAY_IMPORT[task] & tasks for task in tasks)
    assert "style" not in MAY_IMPORT["lab"]
    assert not any("recipes" in allowed for allowed in MAY_IMPORT.values())


def test_no_public_name_hides_a_submodule() -> None:
    hidden = []
    for init in sorted(ROOT.rglob("__init__.py")):
        submodules = {p.stem for p in init.parent.glob("*.py")} | {p.parent.name for p in init.parent.glob("*/__init__.py")}
        package = ".".join(init.parent.relative_to(ROOT.parent).parts)
        for node in ast.walk(ast.parse(init.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module != package:
                names = [alias.asname or alias.name for alias in node.names]
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            hidden += [f"{package}.{name}" for name in names if name in submodules]
    assert hidden == []


def _python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_loads_nothing_until_a_name_is_used() -> None:
    script = """
        import sys
        import efdm
        loaded = lambda: sorted({m.split(".")[1] for m in sys.modules if m.startswith("efdm.")})
        print(loaded(), "torch" in sys.modules)
        from efdm import EFDMix
        heavy = {"numba", "torchvision", "timm", "typer", "rich", "onnx", "jaxtyping", "PIL", "av", "safetensors"}
        print(loaded(), sorted({m.split(".")[0] for m in sys.modules} & heavy), "torch._dynamo" in sys.modules)
    """
    loaded = "['kernels', 'nn', 'ops', 'shapes', 'version']"
    assert _python(script).splitlines() == ["['version'] False", f"{loaded} [] False"]


def test_public_names() -> None:
    assert {*efdm.__all__, "kernels", "nn", "ops"} <= set(dir(efdm))
    assert efdm.ops.efdm is efdm.efdm
    assert efdm.nn.EFDMix is efdm.EFDMix
    with pytest.raises(AttributeError, match="nowhere"):
        _ = efdm.nowhere
    assert sorted(efdm.__all__) == sorted(set(efdm.__all__))
    for name in efdm.__all__:
        public = getattr(efdm, name)
        assert public.__doc__ or not callable(public), f"{name} has no docstring"


def test_torchvision_can_be_imported() -> None:
    allow_torchvision()  # conftest.py has called it once
    import_module("torchvision.models")
