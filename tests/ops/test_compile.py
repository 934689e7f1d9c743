"""torch.compile, autocast, torch.export and ONNX."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from efdm import (
    MATCHERS,
    Partners,
    adain,
    channel_stats,
    efdm,
    efdmix,
    histogram_match,
    interpolate_styles,
    mixstyle,
    prepare,
    tied_share,
)

pytestmark = pytest.mark.slow


def pair(device: torch.device, n: int = 2) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, 6, 5, device=device), torch.randn(n, 3, 6, 5, device=device)


CALLS = {
    "efdm": lambda x, y: efdm(x, y),
    "efdm_neighbor": lambda x, y: efdm(x, y, ties="neighbor"),
    "efdm_flow": lambda x, y: efdm(x, y, style_grad="flow"),
    "efdm_sizes": lambda x, y: efdm(x, y[..., :3]),
    "efdm_masks": lambda x, y: efdm(x, y, content_mask=x[:, 0] > 0, style_mask=y[:, 0] > 0),
    "efdm_nhwc": lambda x, y: efdm(x, y, channel_dim=-1),
    "efdmix": lambda x, y: efdmix(x, y, torch.tensor([0.2, 0.9], device=x.device)[: x.shape[0]]),
    "mixstyle": lambda x, y: mixstyle(x, y, 0.3),
    "hm": lambda x, y: histogram_match(x, y),
    "adain": lambda x, y: adain(x, y),
    "interpolate": lambda x, y: interpolate_styles(x, [y, y.flip(0)], [1, 2]),
    "stats": lambda x, y: torch.stack(list(channel_stats(x))),
    "tied_share": lambda x, y: tied_share(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_compiles_to_one_graph(name: str) -> None:
    torch._dynamo.reset()
    x, y = pair(torch.device("cpu"))
    compiled = torch.compile(CALLS[name], fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), CALLS[name](x, y))


@pytest.mark.parametrize("style_grad", ["stop", "flow"])
def test_compiled_gradients(style_grad: str, device: torch.device) -> None:
    torch._dynamo.reset()
    x, y = (t.requires_grad_() for t in pair(device))
    g = torch.randn_like(x)
    compiled = torch.compile(lambda a, b: efdmix(a, b, 0.25, style_grad=style_grad), fullgraph=True, backend="aot_eager")
    compiled(x, y).backward(g)
    torch.testing.assert_close(x.grad, g)
    if style_grad == "flow":
        torch.testing.assert_close(y.grad.sum((2, 3)), 0.75 * g.sum((2, 3)))
    else:
        assert y.grad is None


def test_compiled_flow_within_a_batch(device: torch.device) -> None:
    torch._dynamo.reset()
    index, lam = torch.tensor([2, 0, 0], device=device), torch.tensor([0.25, 1.0, 0.5], device=device)

    def mix(x: Tensor) -> Tensor:
        return efdmix(x.sin(), Partners(index, "drawn"), lam, style_grad="flow") * 2

    compiled = torch.compile(mix, fullgraph=True, backend="aot_eager", dynamic=True)
    for size, memory_format in ((5, torch.channels_last), (7, torch.channels_last), (6, torch.contiguous_format)):
        x, g = (torch.randn(3, 4, size, size, device=device).contiguous(memory_format=memory_format) for _ in range(2))
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        for function, leaf in ((compiled, a), (mix, b)):
            out = function(leaf)
            assert out.is_contiguous(memory_format=memory_format)
            out.backward(g)
        torch.testing.assert_close(a.grad, b.grad)
        torch.testing.assert_close(compiled(x), mix(x))


def test_inductor(device: torch.device) -> None:
    torch._dynamo.reset()
    x, y = pair(device)
    # on the CPU only our operators: generated C++ code would take 15 s to compile
    function = (lambda a, b: efdmix(a.relu(), b, 0.25) * 2) if device.type == "cuda" else efdm
    torch.testing.assert_close(torch.compile(function, fullgraph=True)(x, y), function(x, y))


def test_compiled_with_dynamic_sizes(device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(efdm, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (4, 7, 9):
        x, y = torch.randn(2, 3, size, size, device=device), torch.randn(2, 3, size, size, device=device)
        assert torch.equal(compiled(x, y), efdm(x, y))


def test_autocast(device: torch.device) -> None:
    dtype = torch.bfloat16
    layer = nn.Conv2d(3, 4, 3).to(device)
    x, y = pair(device)
    with torch.autocast(device.type, dtype=dtype):
        content, style = layer(x), layer(y)
        out = efdm(content, style)
        assert out.dtype == dtype
        assert torch.equal(out.flatten(2).sort(-1).values, style.flatten(2).sort(-1).values)
        assert efdm(content, style.float()).dtype == dtype  # dtypes may differ under autocast
        out.float().square().mean().backward()
    assert layer.weight.grad.isfinite().all()


class Matching(nn.Module):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        return MATCHERS[self.method](self.conv(content), self.conv(style))


def shapes() -> dict[str, dict[int, torch.export.Dim]]:
    batch = torch.export.Dim("batch", min=1, max=64)
    spaces = [torch.export.Dim(name, min=2, max=512) for name in ("height", "width", "style_height", "style_width")]
    return {
        "content": {0: batch, 2: spaces[0], 3: spaces[1]},
        "style": {0: batch, 2: spaces[2], 3: spaces[3]},
    }


EXPORTED_SIZES = [(2, (6, 7), (5, 8)), (1, (9, 4), (9, 4)), (3, (5, 5), (7, 3))]


@pytest.mark.parametrize("method", MATCHERS)
def test_export_with_dynamic_sizes(method: str) -> None:
    model = Matching(method).eval()
    example = (torch.randn(2, 3, 6, 7), torch.randn(2, 3, 5, 8))
    program = torch.export.export(model, example, dynamic_shapes=shapes())
    assert not any("efdm" in str(node.target) for node in program.graph.nodes), "the graph must not need this library"
    for batch, content, style in EXPORTED_SIZES:
        x, y = torch.randn(batch, 3, *content), torch.randn(batch, 3, *style)
        torch.testing.assert_close(program.module()(x, y), model(x, y))


@pytest.mark.parametrize("method", ["efdm", "hm"])
def test_onnx_with_dynamic_sizes(method: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = Matching(method).eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, (torch.randn(2, 3, 6, 7), torch.randn(2, 3, 5, 8)), dynamo=True, dynamic_shapes=shapes(), verbose=False
        )
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for batch, content, style in EXPORTED_SIZES:
        x, y = torch.randn(batch, 3, *content), torch.randn(batch, 3, *style)
        (actual,) = session.run(None, {"content": x.numpy(), "style": y.numpy()})
        np.testing.assert_allclose(actual, model(x, y).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_compiled_with_a_prepared_style(device: torch.device) -> None:
    torch._dynamo.reset()
    x, y = pair(device)
    style = prepare(y)
    compiled = torch.compile(lambda a: efdm(a, style), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), efdm(x, y))
