"""The command ``efdm info``."""

from __future__ import annotations

import math
import platform
from importlib import metadata
from typing import Annotated

import torch
from rich.table import Table

from efdm import kernels
from efdm.apps.cli.options import Device, choice, option, resolve_device
from efdm.apps.cli.printing import console, print_text
from efdm.errors import MissingExtraError, SettingError
from efdm.ops.choices import check_choice
from efdm.version import VERSION

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PACKAGES = (
    "torch", "numba", "numpy", "pillow", "pillow-heif", "pillow-jxl-plugin", "av", "safetensors", "tifffile", "torchvision",
    "timm", "triton", "onnxruntime", "gradio",
)  # fmt: skip


def info(
    shape: Annotated[str, option("Feature shape: batch, channels and any number of spatial dimensions.")] = "1,512,64,64",
    dtype: Annotated[str, choice(DTYPES, "Data type of the features.")] = "float32",
    device: Device = None,
) -> None:
    """Show versions, models, devices and the kernel used for a shape and dtype, with the reason."""
    check_choice("dtype", dtype, tuple(DTYPES))
    target, length = resolve_device(device), _spatial_length(shape)
    chosen = kernels.explain(target, DTYPES[dtype], length)
    console.print(_versions(), _kernels())
    _print_models()
    print_text(f"device: {target} ({_device_name(target)})")
    print_text(f"{shape} {dtype}: {chosen}")


def _spatial_length(shape: str) -> int:
    sizes = shape.lower().replace("x", ",").split(",")
    if len(sizes) < 3 or not all(size.strip().isdecimal() and int(size) > 0 for size in sizes):
        raise SettingError(f"{shape!r} is not a shape; write batch, channels and space, such as 1,512,64,64", "shape")
    return math.prod(int(size) for size in sizes[2:])


def _versions() -> Table:
    table = Table("package", "version", title="Versions")
    table.add_row("efdm", VERSION)
    table.add_row("python", platform.python_version())
    for package in PACKAGES:
        try:
            table.add_row(package, metadata.version(package))
        except metadata.PackageNotFoundError:
            table.add_row(package, "not installed")
    return table


def _kernels() -> Table:
    table = Table("kernel", "device", "dtypes", "available", "description", title="Kernels (the first that fits is used)")
    for kernel in kernels.KERNELS:
        dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in kernel.dtypes)
        table.add_row(kernel.name, kernel.device, dtypes, kernel.unavailable_reason() or "yes", kernel.description)
    return table


def _print_models() -> None:
    try:
        from efdm.data import READABLE
        from efdm.models import NETWORKS
        from efdm.models.weights import is_available
    except MissingExtraError as error:
        return print_text(f"style transfer: {error}")
    models = [f"{name} ({'found' if is_available(name) else 'weights missing, see `efdm weights`'})" for name in NETWORKS]
    print_text(f"style transfer models: {', '.join(models)}")
    print_text(f"readable pictures: {' '.join(READABLE)}")


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
