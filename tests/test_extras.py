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
sys.modules.update({"numpy": None, "PIL": None, "safetensors": None})
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(module, type(error).__name__, error)
"""


def test_missing_package_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *EXTRAS], capture_output=True, text=True, check=True)
    messages = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(messages) == set(EXTRAS)
    for module, extra in EXTRAS.items():
        assert messages[module].startswith("MissingExtraError")
        assert f"pip install 'efdm[{extra}]'" in messages[module]
