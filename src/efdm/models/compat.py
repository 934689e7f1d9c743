"""Let torchvision be imported beside a torch it was not built for."""

from __future__ import annotations

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[torch.library.Library] = []  # a library that is collected takes its operators with it


def allow_torchvision() -> None:
    """Call before importing torchvision, timm or lpips, if their import may fail with "operator torchvision::nms does not
    exist". Calling it when it is not needed, or twice, does no harm.

    torchvision's Python code attaches fake kernels to two operators that its compiled part should have defined. With a
    CPU build of torch that part cannot be loaded, the operators are missing and the import fails, although models and
    transforms need neither. Declaring the two signatures is enough; calling them still fails.
    """
    import importlib.util

    if importlib.util.find_spec("torchvision") is None or _compiled_part_loads():
        return
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(schema)
            _libraries.append(library)


def _compiled_part_loads() -> bool:
    """Whether torchvision's own operators can be had. Loading them here is what torchvision does itself."""
    import importlib.machinery
    import importlib.util
    from pathlib import Path

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
