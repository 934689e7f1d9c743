"""Groups of commands whose modules are imported only when one of their commands is run."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from efdm.apps.cli import quiet_interrupt
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.printing import print_text
from efdm.errors import MissingExtraError
from efdm.version import VERSION


class Command(NamedTuple):
    """A command: the module whose ``app`` runs it, its line in the help text, and the extra with its packages."""

    module: str
    help: str
    extra: str


COMMANDS: Mapping[str, Command] = {
    "stylize": Command("efdm.apps.cli.stylize", "Stylize pictures or a video.", "style"),
    "match": Command("efdm.apps.cli.match", "Give pictures or a video exactly the colours of a reference.", "style"),
    "app": Command("efdm.apps.cli.web", "Open a web page: stylize pictures and videos, compare models.", "app"),
    "demo": Command("efdm.apps.cli.demo", "Stylize the pictures in the package and write three contact sheets.", "style"),
    "train": Command("efdm.apps.cli.train", "Train a style transfer network.", "style"),
    "evaluate": Command("efdm.apps.cli.evaluate", "Measure style transfer on pairs of pictures.", "style"),
    "export": Command("efdm.apps.cli.export", "Write a style transfer network as an ONNX file.", "onnx"),
    "study": Command("efdm.apps.cli.study", "Ask people which stylized pictures they prefer.", "style"),
    "weights": Command("efdm.apps.cli.weights", "List weight files, locate them, and normalise a VGG.", "style"),
    "dg": Command("efdm.apps.cli.dg", "Domain generalization: train and compare classifiers.", "dg"),
    "reid": Command("efdm.apps.cli.reid", "Re-identification: train, test and compare networks that find people.", "reid"),
    "info": Command("efdm.apps.cli.info", "Show versions, devices, and the kernel for a shape and dtype.", "cli"),
}


class LazyGroup(TyperGroup):
    """A group that lists the commands of a table and imports a module only to run its command."""

    table: Mapping[str, Command] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, row in self.table.items():
            self.add_command(TyperCommand(name, help=row.help))  # listed in the help text; never run

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.table:
            with report_errors():
                command = _load(self.table[name])
            command.name = name
        return name, command, rest


def _load(row: Command) -> Any:
    try:
        with quiet_interrupt():
            module = importlib.import_module(row.module)
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "efdm":  # an import error inside this package
            raise
        raise MissingExtraError(error.name, row.extra) from error
    return typer.main.get_command(module.app)


def lazy_app(help_text: str, table: Mapping[str, Command], *, add_completion: bool = False) -> typer.Typer:
    """Return an app with the commands of ``table``. ``add_completion`` adds options that install shell completion."""
    group = type("Group", (LazyGroup,), {"table": table})
    made = typer.Typer(cls=group, no_args_is_help=True, add_completion=add_completion, help=help_text)
    made.callback()(lambda: None)
    return made


ABOUT = "Exact feature distribution matching: style transfer, domain generalization and re-identification."
app = lazy_app(ABOUT, COMMANDS, add_completion=True)


def quiet_readers() -> None:
    """Silence the warnings of Pillow and tifffile about damaged files, which errors already report by name."""
    warnings.filterwarnings("ignore", module=r"PIL\.")
    for reader in ("PIL", "tifffile"):
        logging.getLogger(reader).setLevel(logging.CRITICAL)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(VERSION)
        raise typer.Exit


@app.callback(help=ABOUT)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...
