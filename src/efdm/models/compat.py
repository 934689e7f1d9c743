"""Import torchvision next to a build of torch that it was not compiled for."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[torch.library.Library] = []  # operators vanish when their library is garbage-collected


def allow_torchvision() -> None:
    """Prevent "operator torchvision::nms does not exist" when torchvision, timm or lpips is imported afterwards.

    torchvision registers fake kernels for two operators of its compiled extension. If the extension does not load, as with a
    CPU build of torch, the operators are missing and the import fails, although models and transforms need neither. This
    function declares the two schemas; calling the operators still fails. Repeated calls are harmless.
    """
    if importlib.util.find_spec("torchvision") is None or _extension_loads():
        return
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(schema)
            _libraries.append(library)


def _extension_loads() -> bool:
    """Load torchvision's compiled extension, as its import does, and return whether that worked."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return False
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        file = Path(spec.submodule_search_locations[0]) / f"_C{suffix}"
        if file.exists():
            try:
                torch.ops.load_library(str(file))
            except OSError:
                return False
            return hasattr(torch.ops.torchvision, "nms")
    return False
