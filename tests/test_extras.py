"""Importing a subpackage without its optional dependencies raises an error that names the extra to install."""

import subprocess
import sys

import pytest

EXTRAS = {
    "efdm.style": "style",
    "efdm.style.stylizer": "style",
    "efdm.data": "style",
    "efdm.models.weights": "style",
    "efdm.dg": "dg",
    "efdm.reid": "reid",
    "efdm.lab": "dg",
}
CODE = """
import importlib, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
for module in sys.argv[2:]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(module, type(error).__name__, error)
"""
LOAD = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from efdm.apps.cli.group import COMMANDS, load

def load_all(table):
    for row in table.values():
        if not isinstance(row.target, str):
            load_all(row.target)
        elif row.extra in sys.argv[2:]:
            load(row)

load_all(COMMANDS)
"""


def test_missing_package_names_the_extra() -> None:
    check("numpy,PIL,safetensors", EXTRAS)


def test_lab_needs_the_package_of_its_tables_before_the_runs() -> None:
    check("scipy", {"efdm.lab": "dg"})


@pytest.mark.parametrize("extras", [("cli",), ("cli", "style")], ids="-".join)
def test_commands_load_without_the_packages_of_other_extras(extras: tuple[str, ...]) -> None:
    others = {"dg": "scipy,sklearn,timm,torchvision,matplotlib", "app": "gradio", "style": "numpy,PIL,av,pydantic,filelock"}
    missing = ",".join(packages for extra, packages in others.items() if extra not in extras)
    subprocess.run([sys.executable, "-c", LOAD, missing, *extras], check=True)


def check(missing: str, extras: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, missing, *extras], capture_output=True, text=True, check=True)
    messages = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(messages) == set(extras)
    for module, extra in extras.items():
        assert messages[module].startswith("MissingExtraError")
        assert f"pip install 'efdm[{extra}]'" in messages[module]
