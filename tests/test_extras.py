"""Importing a subpackage without its optional dependencies raises an error that names the extra to install."""

import subprocess
import sys

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


def test_missing_package_names_the_extra() -> None:
    check("numpy,PIL,safetensors", EXTRAS)


def test_lab_needs_the_package_of_its_tables_before_the_runs() -> None:
    check("scipy", {"efdm.lab": "dg"})


def check(missing: str, extras: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, missing, *extras], capture_output=True, text=True, check=True)
    messages = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(messages) == set(extras)
    for module, extra in extras.items():
        assert messages[module].startswith("MissingExtraError")
        assert f"pip install 'efdm[{extra}]'" in messages[module]
