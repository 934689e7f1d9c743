"""Who may know whom, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import efdm

ROOT = Path(efdm.__file__).parent
BELOW = {"kernels", "ops", "nn", "models", "data", "training"}
KNOWS: dict[str, set[str]] = {  # room: the rooms it may import
    "kernels": set(),
    "ops": {"kernels"},
    "nn": {"kernels", "ops"},
    "models": set(),
    "data": set(),
    "training": {"ops"},
    "style": BELOW,
    "dg": BELOW,
    "lab": BELOW | {"dg"},
    "apps": BELOW | {"style", "dg", "lab"},
    "recipes": BELOW | {"style", "dg", "lab"},  # files to read and copy: no room has them in its row
}


def rooms_imported(file: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "efdm" and len(parts) > 1 and parts[1] in KNOWS:
                found.append((node.lineno, parts[1]))
    return found


def test_every_folder_is_a_known_room() -> None:
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == set(KNOWS)


@pytest.mark.parametrize("room", KNOWS)
def test_lower_rooms_do_not_import_higher_ones(room: str) -> None:
    offences = [
        f"{file.relative_to(ROOT.parent)}:{line} imports efdm.{other}"
        for file in sorted((ROOT / room).rglob("*.py"))
        for line, other in rooms_imported(file)
        if other != room and other not in KNOWS[room]
    ]
    assert offences == []


def test_style_and_dg_do_not_know_each_other_and_nothing_imports_recipes() -> None:
    """What the table says, said once more: a row that is widened by mistake would hide every import."""
    assert "dg" not in KNOWS["style"]
    assert "style" not in KNOWS["dg"] | KNOWS["lab"]
    assert not any("recipes" in known for known in KNOWS.values())


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
        print(loaded(), sorted({m.split(".")[0] for m in sys.modules} & heavy))
    """
    assert _python(script).splitlines() == ["['version'] False", "['kernels', 'nn', 'ops', 'shapes', 'version'] []"]


def test_the_public_map() -> None:
    assert {*efdm.__all__, "kernels", "nn", "ops"} <= set(dir(efdm))
    assert efdm.ops.efdm is efdm.efdm
    assert efdm.nn.EFDMix is efdm.EFDMix
    with pytest.raises(AttributeError, match="nowhere"):
        _ = efdm.nowhere
    assert sorted(efdm.__all__) == sorted(set(efdm.__all__))
    for name in efdm.__all__:
        public = getattr(efdm, name)
        assert public.__doc__ or not callable(public), f"{name} has no documentation"


def test_torchvision_can_be_imported() -> None:
    """In a process of its own: this one has prepared it already."""
    pytest.importorskip("torchvision")
    script = "from efdm.models import allow_torchvision; allow_torchvision(); allow_torchvision(); import torchvision.models"
    _python(script)
