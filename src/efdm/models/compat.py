"""Import torchvision next to a build of torch that it was not compiled for."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import torch

_libraries: list[torch.library.Library] = []  # operators vanish when their library is garbage-collected


def allow_torchvision() -> None:
    """Prevent "operator torchvision::nms does not exist" when torchvision, timm or lpips is imported afterwards.

    torchvision registers fake kernels for two operators of its compiled extension. If the extension does not load, as with a
    CPU build of torch, the operators are missing and the import fails, although models and transforms need neither. This
    function declares the two operators; calling them still fails. Repeated calls are harmless.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for extension in Path(spec.origin).parent.glob("_C.*"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(extension))  # as torchvision does
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _libraries.append(library)
