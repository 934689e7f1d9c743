"""The nodes for ComfyUI, called as ComfyUI calls them."""

import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor

from efdm import efdm
from efdm.integrations import comfyui
from efdm.style import match_picture


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    management: Any = types.ModuleType("comfy.model_management")
    management.get_torch_device = lambda: torch.device("cpu")
    monkeypatch.setitem(sys.modules, "comfy", types.ModuleType("comfy"))
    monkeypatch.setitem(sys.modules, "comfy.model_management", management)


def images(seed: int, batch: int = 2, size: tuple[int, int] = (20, 24), channels: int = 3) -> Tensor:
    return torch.rand(batch, *size, channels, generator=torch.Generator().manual_seed(seed)) ** (1 + seed)


def call(name: str, **given: Any) -> Any:
    """Run a node with its defaults, as a workflow does: choices default to the first."""
    node = comfyui.NODE_CLASS_MAPPINGS[name]
    inputs = node.INPUT_TYPES()
    chosen = {key: options[0]["default"] if options else kind[0] for key, (kind, *options) in inputs["required"].items()}
    values = {key: value for key, value in chosen.items() if inputs["required"][key][0] not in ("IMAGE", "LATENT")}
    assert set(values) | set(given) <= {*inputs["required"], *inputs["optional"]}
    results = getattr(node(), node.FUNCTION)(**{**values, **given})
    assert len(results) == len(node.RETURN_TYPES)
    return results[0]


def test_every_node_is_named() -> None:
    assert comfyui.NODE_CLASS_MAPPINGS.keys() == comfyui.NODE_DISPLAY_NAME_MAPPINGS.keys()
    for node in comfyui.NODE_CLASS_MAPPINGS.values():
        assert callable(getattr(node, node.FUNCTION))
        assert node.CATEGORY == "EFDM"


def test_style_transfer() -> None:
    x = images(1)
    made = call("EFDMStyleTransfer", image=x, style=images(2, 1, (16, 16)))
    assert made.shape == x.shape
    assert made.dtype == torch.float32
    assert 0 <= made.min() < made.max() <= 1
    assert not torch.allclose(made, x, atol=0.05)
    other = call("EFDMStyleTransfer", image=x, style=images(3, 2, (16, 16)), strength=0.5)
    assert not torch.allclose(made, other)


def test_colours_of_a_batch_are_one_distribution() -> None:
    x, y = images(1), images(2)
    made = call("EFDMColorMatch", image=x, reference=y)
    assert made.shape == x.shape
    torch.testing.assert_close(made.reshape(-1, 3).sort(0).values, y.reshape(-1, 3).sort(0).values, rtol=0, atol=0)


def test_colours_of_each_image() -> None:
    x, y = images(1), images(2, 1)
    made = call("EFDMColorMatch", image=x, reference=y, frames="each", space="lab")
    expected = match_picture(x[1].movedim(-1, 0), y[0].movedim(-1, 0), space="lab").movedim(0, -1).clamp(0, 1)
    torch.testing.assert_close(made[1], expected)


@pytest.mark.parametrize("frames", comfyui.FRAMES)
def test_masks_and_alpha(frames: str) -> None:
    x, y = images(1, channels=4), images(2, 3)
    mask = torch.zeros(10, 12)
    mask[:5] = 1
    made = call("EFDMColorMatch", image=x, reference=y, frames=frames, mask=mask, reference_mask=mask.expand(3, -1, -1))
    assert torch.equal(made[:, 10:], x[:, 10:])
    assert torch.equal(made[..., 3], x[..., 3])
    assert not torch.equal(made[:, :10, :, :3], x[:, :10, :, :3])


@pytest.mark.parametrize("space", [(8, 8), (3, 8, 8)])
def test_latents(space: tuple[int, ...]) -> None:
    x, y = torch.randn(3, 4, *space), torch.randn(2, 4, *space)
    latent = {"samples": x, "batch_index": [0, 1, 2]}
    made = call("EFDMLatentMatch", latent=latent, reference={"samples": y})
    assert made["batch_index"] == [0, 1, 2]
    assert torch.equal(made["samples"], efdm(x, y[[0, 1, 0]]))
    assert latent["samples"] is x, "inputs are not changed"
    assert torch.equal(call("EFDMLatentMatch", latent=latent, reference={"samples": y}, strength=0.0)["samples"], x)


def test_without_comfyui_the_default_device_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comfy.model_management", None)
    assert comfyui.compute_device().type in ("cpu", "cuda")
