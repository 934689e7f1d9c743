"""Groups of commands whose modules are imported only when one of their commands is run."""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from efdm.apps.cli import quiet_interrupt
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.printing import print_text
from efdm.errors import requires
from efdm.version import VERSION


class Command(NamedTuple):
    """A command: its function as "module:function", or a table of subcommands; its line in the help text; its extra."""

    target: str | Mapping[str, Command]
    help: str
    extra: str
    default: str = ""  # the subcommand that runs if none is given; "" prints the help text


STUDY: Mapping[str, Command] = {
    "make": Command("study:make", "Render pairs of content and style by several candidates, under random names.", "style"),
    "serve": Command("study:serve", "Serve the page on which people vote.", "style"),
    "report": Command("study:report", "Print shares, Bradley-Terry strengths and agreement.", "style"),
}
WEIGHTS: Mapping[str, Command] = {
    "list": Command("weights:list_weights", "List all weights with their licences and files.", "style"),
    "where": Command("weights:where", "Print the path of a weight file, or how to get it.", "style"),
    "normalize": Command("weights:normalize", "Rescale a VGG so that every channel has a mean activation of 1.", "style"),
}
DG: Mapping[str, Command] = {
    "demo": Command("dg.demo:demo", "Compare three methods on digits in four styles. Needs no download.", "dg"),
    "train": Command("dg.train:train_command", "Train one classifier on your own pictures.", "dg"),
    "predict": Command("dg.predict:predict", "Predict classes and their probabilities.", "dg"),
    "run": Command("run:dg", "Train all runs of a recipe and print its tables.", "dg"),
    "table": Command("table:table", "Print or write the tables of a run.", "dg"),
    "analyse": Command("dg.analyse:analyse", "Analyse the features of a trained classifier.", "dg"),
    "list": Command("list:dg", "List recipes, methods and backbones.", "dg"),
}
REID: Mapping[str, Command] = {
    "train": Command("reid.train:train_command", "Train a network on pictures of people.", "reid"),
    "test": Command("reid.test:measure", "Measure mAP and CMC of a trained network.", "reid"),
    "search": Command("reid.search:search", "Search pictures for people and draw the ranked results.", "reid"),
    "run": Command("run:reid", "Train all runs of a recipe and print its tables.", "reid"),
    "table": Command("table:table", "Print or write the tables of a run.", "reid"),
    "list": Command("list:reid", "List recipes, methods, backbones, protocols and layouts.", "reid"),
}
TRAIN = {"style": Command("train:style", "Train a style transfer network on your own pictures.", "style")}
EVALUATE = {"style": Command("evaluate:style", "Stylize pairs of pictures and measure the results.", "style")}
COMMANDS: Mapping[str, Command] = {
    "stylize": Command("stylize:stylize", "Stylize pictures or a video.", "style"),
    "match": Command("match:match", "Match the colours of pictures or a video with a reference.", "style"),
    "app": Command("web:run_app", "Open a web page: stylize pictures and videos, compare models.", "app"),
    "demo": Command("demo:demo", "Stylize the pictures in the package and write three contact sheets.", "style"),
    "train": Command(TRAIN, "Train a style transfer network.", "style"),
    "evaluate": Command(EVALUATE, "Measure style transfer on pairs of pictures.", "style"),
    "export": Command("export:export", "Write a style transfer network as an ONNX file.", "onnx"),
    "study": Command(STUDY, "Ask people which stylized pictures they prefer.", "style"),
    "weights": Command(WEIGHTS, "List weight files, locate them, and normalize a VGG.", "style", default="list"),
    "dg": Command(DG, "Domain generalization: train and compare classifiers.", "dg"),
    "reid": Command(REID, "Re-identification: train, test and compare networks that find people.", "reid"),
    "info": Command("info:info", "Show versions, devices, and the kernel for a shape and dtype.", "cli"),
}


class LazyGroup(TyperGroup):
    """A group that lists the commands of a table and imports a module only to run its command."""

    table: Mapping[str, Command] = {}
    default = ""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, row in self.table.items():
            self.add_command(TyperCommand(name, help=row.help))  # listed in the help text; never run

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default and not args and not ctx.resilient_parsing:  # shell completion lists all subcommands
            args = [self.default]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.table:
            with report_errors():
                command = load(self.table[name])
            command.name = name
        return name, command, rest


def load(row: Command) -> Any:
    """Import and return a command. Raise MissingExtraError if a package that it needs is missing."""
    if not isinstance(row.target, str):
        return typer.main.get_command(lazy_app(row.help, row.target, default=row.default))
    module, _, name = row.target.partition(":")
    with quiet_interrupt(), requires(row.extra):
        function = getattr(importlib.import_module(f"efdm.apps.cli.{module}"), name)
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")  # the terminal wraps paragraphs
    single = typer.Typer(add_completion=False)
    single.command(help=text)(report_errors()(function))
    command = typer.main.get_command(single)
    for parameter in command.params:  # names as the help texts use them; typer prints {content}, and <bool> for a flag
        if parameter.metavar is None and parameter.param_type_name == "argument":
            parameter.metavar = str(parameter.name).upper()
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return command


def lazy_app(
    help_text: str, table: Mapping[str, Command], *, default: str = "", add_completion: bool = False
) -> typer.Typer:
    """Return an app with the commands of ``table``. ``add_completion`` adds options that install shell completion."""
    group = type("Group", (LazyGroup,), {"table": table, "default": default})
    result = typer.Typer(cls=group, no_args_is_help=True, add_completion=add_completion, help=help_text)
    result.callback()(lambda: None)
    return result


ABOUT = "Exact feature distribution matching: style transfer, domain generalization and re-identification."
app = lazy_app(ABOUT, COMMANDS, add_completion=True)


def quiet_readers() -> None:
    """Silence the warnings of Pillow and tifffile about damaged files, which errors already report by name."""
    warnings.filterwarnings("ignore", module=r"PIL\.")
    for reader in ("PIL", "tifffile"):
        logging.getLogger(reader).setLevel(logging.CRITICAL)


def _print_version(requested: bool) -> None:
    if requested:
        print_text(VERSION)
        raise typer.Exit


@app.callback(help=ABOUT)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...
