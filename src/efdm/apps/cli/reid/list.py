"""``efdm reid list``."""

from __future__ import annotations

from efdm.apps.cli.dg.list import print_lists, print_rows
from efdm.data.people_layouts import LAYOUTS
from efdm.reid import PROTOCOLS


def list_command() -> None:
    """List recipes, methods, backbones, protocols and layouts."""
    print_lists("reid")
    print_rows("Protocols of test sets", ((name, row.about, "") for name, row in PROTOCOLS.items()))
    print_rows("Layouts of data sets, recognised by their file names", ((n, row.example, "") for n, row in LAYOUTS.items()))
