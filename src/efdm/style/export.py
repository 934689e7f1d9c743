"""ONNX files of a style transfer network, for runtimes without Python.

`PARTS` lists the graphs: the whole stylizer, or two halves that prepare a style once and apply it to many contents. Their
sizes are dynamic, and every file is compared with PyTorch before it is kept.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from efdm.data import read_picture, resize_short_side
from efdm.data.embedded import photos, read_style
from efdm.errors import requires
from efdm.files import atomic_path
from efdm.models import StyleNetwork
from efdm.ops import PreparedStyle, blend, efdm, prepare
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.style.pipeline import fade, match_options, transfer
from efdm.version import VERSION

PartName = Literal["whole", "prepare", "apply"]

LEAST_SIDE = 16  # pixels; the features of a smaller picture are too small for reflection padding
TORCH = (2, 11)  # the oldest tested version whose exporter converts the graph
MAX_DIFFERENCE = 2 / 255  # from PyTorch, averaged over a picture
TESTED_SIDES, TESTED_STRENGTH = (256, 192), 0.8  # short sides of content and style, and strength, of the check


def _prepare(network: StyleNetwork, style: Tensor) -> list[Tensor]:
    return [prepare(features).values for features in network.features(style)]


def _apply(network: StyleNetwork, content: Tensor, strength: Tensor, styles: Sequence[Tensor]) -> Tensor:
    """Return the output of `transfer`, without tiles and chunks, whose number would depend on the size."""
    x = unmatched = content
    for depth, stage in enumerate(network.stages):
        x = stage(x)
        unmatched = x if depth == 0 else stage(unmatched)
        x = efdm(x, PreparedStyle(styles[depth]), **match_options(network))
    picture = network.decoder(blend(unmatched, x, strength))[..., : content.shape[-2], : content.shape[-1]]
    return fade(content, picture, strength).clamp(0, 1)


def _stylize(network: StyleNetwork, content: Tensor, strength: Tensor, style: Tensor) -> Tensor:
    return _apply(network, content, strength, _prepare(network, style))


@dataclass(frozen=True)
class Part:
    """A row of `PARTS`."""

    about: str
    function: Callable[..., Any]  # of the network and the inputs
    inputs: tuple[str, ...]

    def select(self, **values: Any) -> tuple[Any, ...]:
        """Return the entries of ``values`` for the inputs of this part."""
        return tuple(values[name] for name in self.inputs)


# contents and styles are (1, 3, h, w), strengths (1,), and features (1, c, n), sorted, after every stage
PARTS: Mapping[str, Part] = {
    "whole": Part("content, strength, style -> picture", _stylize, ("content", "strength", "style")),
    "prepare": Part("style -> features1, features2, ...", _prepare, ("style",)),
    "apply": Part("content, strength, features1, features2, ... -> picture", _apply, ("content", "strength", "features")),
}  # fmt: skip


class PartModule(nn.Module):
    """A row of `PARTS` as a module, which the exporter needs."""

    def __init__(self, network: StyleNetwork, part: PartName) -> None:
        super().__init__()
        self.network, self.function = network, PARTS[part].function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.network, *inputs)


class Check(NamedTuple):
    """The mean absolute difference of a picture from PyTorch, and the seconds of one run in onnxruntime and in PyTorch."""

    difference: float
    seconds: float
    torch_seconds: float
    size: tuple[int, int]  # height and width of the content


@torch.no_grad()
def export_onnx(network: StyleNetwork, path: str | Path, part: PartName = "whole", *, progress: Report = ignore) -> Check:
    """Write a part of a network to the ONNX file ``path`` and return how it compares with PyTorch.

    Inputs are RGB in [0, 1] with sides of at least 16 pixels, and features are matched by "efdm" with the tolerance of the
    network. Raises RuntimeError, and writes no file, if a picture differs from PyTorch's by more than 2/255 on average.
    """
    check_choice("part", part, tuple(PARTS))
    _import_runtime()
    network = network.cpu().eval()
    progress(Progress("tracing", 0, 2))
    program = _trace(network, part)
    program.model.metadata_props.update({"efdm": VERSION, "network": network.name, "part": part})
    progress(Progress("comparing with PyTorch", 1, 2))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        program.save(str(temporary))
        check = check_onnx(network, temporary, part)
        if not check.difference <= MAX_DIFFERENCE:
            raise RuntimeError(f"{path} differs from PyTorch by {check.difference * 255:.2f}/255 on average; not written")
    progress(Progress("comparing with PyTorch", 2, 2))
    return check


@torch.no_grad()
def check_onnx(
    network: StyleNetwork, path: str | Path, part: PartName = "whole", *, clock: Callable[[], float] = time.perf_counter
) -> Check:
    """Compare an ONNX file with PyTorch on a photo and a painted style, and time both with torch's number of threads."""
    runtime = _import_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    content = resize_short_side(read_picture(photos()["coffee"]).rgb, TESTED_SIDES[0])[None]
    style = read_style("starry", TESTED_SIDES[1])[None]
    row, features = PARTS[part], _prepare(network, style)
    inputs = row.select(content=content, strength=torch.tensor([TESTED_STRENGTH]), style=style, features=features)
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), tree_leaves(inputs), strict=True)}

    def picture(styles: Sequence[Tensor]) -> Tensor:
        return transfer(network, content, [PreparedStyle(values) for values in styles], strength=TESTED_STRENGTH).clamp(0, 1)

    outputs, seconds = _timed(lambda: session.run(None, feeds), clock)
    tensors = [torch.from_numpy(output) for output in outputs]
    actual = picture(tensors) if part == "prepare" else tensors[0]
    _, torch_seconds = _timed(lambda: row.function(network, *inputs), clock)
    difference = (actual - picture(features)).abs().mean().item()
    return Check(difference, seconds, torch_seconds, (content.shape[2], content.shape[3]))


def _import_runtime() -> Any:
    if tuple(map(int, torch.__version__.split(".")[:2])) < TORCH:
        raise ImportError(f"ONNX export needs torch {TORCH[0]}.{TORCH[1]} or later, got {torch.__version__}; upgrade torch")
    with requires("onnx"):
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    return onnxruntime


def _timed(function: Callable[[], Any], clock: Callable[[], float], repeats: int = 3) -> tuple[Any, float]:
    """Return a result and the shortest of ``repeats`` times, after a call that compiles kernels and allocates memory."""
    result = function()
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return result, min(times)


def _trace(network: StyleNetwork, part: PartName) -> Any:
    """Return the ONNX program of a part, traced with sizes that are not multiples of any stride."""
    content, style = torch.rand(1, 3, 61, 76), torch.rand(1, 3, 67, 92)
    names = [f"features{depth}" for depth in range(1, len(network.stages) + 1)]
    sizes = [
        {2 + i: torch.export.Dim(f"{role}{side}", min=LEAST_SIDE) for i, side in enumerate(("height", "width"))}
        for role in ("", "style_")
    ]
    counts = [{2: torch.export.Dim(f"{name}_count", min=4)} for name in names]
    row = PARTS[part]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deprecated functions that the exporter uses
        return torch.onnx.export(
            PartModule(network, part).eval(),
            row.select(content=content, strength=torch.tensor([0.5]), style=style, features=_prepare(network, style)),
            input_names=tree_leaves(row.select(content="content", strength="strength", style="style", features=names)),
            output_names=names if part == "prepare" else ["picture"],
            # one tuple, because the inputs of the module are variadic
            dynamic_shapes=(row.select(content=sizes[0], strength=None, style=sizes[1], features=counts),),
            dynamo=True,
            verbose=False,
        )
