"""The command ``efdm``."""

from __future__ import annotations

import importlib
import platform
import sys
from importlib import metadata
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ImportError:  # the library does not need them
    sys.exit("The command line needs typer and rich: pip install typer rich")

import torch

import efdm
from efdm import kernels
from efdm.apps.devices import pick_device

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Exact feature distribution matching.")
console = Console()

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PACKAGES = ("numba", "numpy", "torchvision", "timm", "triton", "onnxruntime")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(efdm.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exact feature distribution matching."""


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def _space_of(shape: str) -> int:
    """The number of positions in B,C,H,W..."""
    try:
        sizes = [int(s) for s in shape.lower().replace("x", ",").split(",")]
    except ValueError:
        sizes = []
    if len(sizes) < 3 or min(sizes) < 1:
        raise typer.BadParameter(f"{shape!r} is not a shape; write batch, channels and space like 1,512,64,64")
    return int(torch.tensor(sizes[2:]).prod())


@app.command()
def info(
    shape: Annotated[str, typer.Option(help="Feature shape B,C,H,W; any number of space dimensions.")] = "1,512,64,64",
    dtype: Annotated[str, typer.Option(help=f"One of {', '.join(DTYPES)}.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; default: the GPU if there is one.")] = "",
) -> None:
    """Versions, devices, and which kernel would run for a shape and dtype, and why."""
    if dtype not in DTYPES:
        raise typer.BadParameter(f"{dtype!r} is not one of {', '.join(DTYPES)}", param_hint="--dtype")
    try:
        target = pick_device(device)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from error
    n = _space_of(shape)

    versions = Table("package", "version", title="Versions")
    versions.add_row("efdm", efdm.__version__)
    versions.add_row("python", platform.python_version())
    versions.add_row("torch", torch.__version__)
    for package in PACKAGES:
        versions.add_row(package, _version_of(package))
    console.print(versions)

    rows = Table("kernel", "device", "dtypes", "runs here", "what it is", title="Kernel table (first row that fits wins)")
    for kernel in kernels.KERNELS:
        names = ", ".join(str(t).removeprefix("torch.") for t in kernel.dtypes)
        rows.add_row(kernel.name, kernel.device, names, kernel.unavailable_reason() or "yes", kernel.description)
    console.print(rows)

    console.print(f"device: {target} ({_device_name(target)})", soft_wrap=True)
    try:
        console.print(f"{shape} {dtype}: {kernels.explain(target, DTYPES[dtype], n)}", soft_wrap=True)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=kernels.ENV_VARIABLE) from error


# commands with files of their own: the function or group in each, and the extra that has the packages it needs
COMMANDS = {
    "stylize": ("efdm.apps.stylize", "stylize", "style"),
    "demo": ("efdm.apps.demo", "demo", "style"),
    "train": ("efdm.apps.train", "app", "style"),
    "evaluate": ("efdm.apps.evaluate", "app", "style"),
    "dg": ("efdm.apps.dg", "app", "dg"),
    "weights": ("efdm.apps.weights", "app", "style"),
}


def _add(name: str, module: str, what: str, extra: str) -> None:
    try:
        found = getattr(importlib.import_module(module), what)
    except ModuleNotFoundError as error:
        missing = error.name

        @app.command(name, help="Needs more packages.", context_settings={"ignore_unknown_options": True})
        def without(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
            told = f"efdm {name} needs {missing}: pip install 'efdm[{extra}]'"
            console.print(told, style="red", markup=False, soft_wrap=True)
            raise typer.Exit(2)

        return
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)


for _name, _row in COMMANDS.items():
    _add(_name, *_row)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
