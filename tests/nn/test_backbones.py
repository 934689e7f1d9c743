"""Insertion into the common families of torchvision and timm, with their presets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from efdm import EFDMix, mix_after, unmix
from efdm.models.backbones import build_backbone
from efdm.nn import FAMILIES, stages_at, stages_of

pytestmark = pytest.mark.slow

# name: (library, constructor arguments, input size, stages to use)
MODELS = {
    "resnet18": ("torchvision", {}, 64, 3),
    "resnet50": ("torchvision", {}, 64, 2),
    "vgg11_bn": ("torchvision", {}, 64, 3),
    "mobilenet_v2": ("torchvision", {}, 64, 3),
    "mobilenet_v3_small": ("torchvision", {}, 64, 3),
    "efficientnet_b0": ("torchvision", {}, 64, 3),
    "convnext_tiny": ("torchvision", {}, 64, 3),
    "vit_b_16": ("torchvision", {"image_size": 32}, 32, 2),
    "swin_t": ("torchvision", {}, 64, 3),
    "resnet10t": ("timm", {}, 64, 3),
    "vgg11": ("timm", {}, 64, 3),
    "mobilenetv2_050": ("timm", {}, 64, 3),
    "mobilenetv3_small_050": ("timm", {}, 64, 3),
    "efficientnet_lite0": ("timm", {}, 64, 3),
    "convnext_atto": ("timm", {}, 64, 3),
    "vit_tiny_patch16_224": ("timm", {"img_size": 32}, 32, 3),
    "deit3_small_patch16_224": ("timm", {"img_size": 32}, 32, 2),
    "swin_tiny_patch4_window7_224": ("timm", {"img_size": 64}, 64, 3),
    "vgg16-gap": ("efdm", {}, 64, 3),
}


def build(name: str) -> tuple[nn.Module, int, int]:
    library, arguments, size, stages = MODELS[name]
    if library == "efdm":
        return build_backbone(name, 4), size, stages
    if library == "torchvision":
        models = pytest.importorskip("torchvision.models")
        return getattr(models, name)(weights=None, num_classes=4, **arguments), size, stages
    timm = pytest.importorskip("timm")
    return timm.create_model(name, pretrained=False, num_classes=4, **arguments), size, stages


@pytest.mark.parametrize("name", MODELS)
def test_family(name: str) -> None:
    model, size, count = build(name)
    keys = list(model.state_dict())
    found = stages_of(model)
    assert len(found) >= count
    calls = []

    class Seeing(EFDMix):
        def forward(self, features: torch.Tensor, domains=None, layout=None) -> torch.Tensor:
            out = super().forward(features, domains, layout)
            calls.append((features, out, *layout))
            return out

    mix_after(model, [f"stage{i + 1}" for i in range(count)], Seeing(p=1.0, alpha=5.0, pairing="crossdomain"))
    assert list(model.state_dict()) == keys
    x = torch.randn(4, 3, size, size)
    model.train()(x, domains=torch.tensor([0, 0, 1, 1])).sum().backward()
    assert len(calls) == count
    widths = []
    for features, out, channel_dim, prefix in calls:
        assert not torch.equal(features, out)
        widths.append(features.shape[channel_dim])
        if prefix:
            assert torch.equal(features[:, :prefix], out[:, :prefix])
        # matched over space, so the channel must be the dimension that a linear or convolution layer widens
        assert features.shape[channel_dim] not in (1, 3)
    assert widths == sorted(widths), "stages go from shallow to deep"
    calls.clear()
    model.eval()
    with torch.no_grad():
        model(x)
    assert calls == []
    unmix(model)


def test_every_row_of_the_preset_table_is_tested() -> None:
    from efdm.nn.stages import family_of

    seen = {(f.library, f.name) for f in (family_of(build(n)[0]) for n in MODELS) if f}
    assert seen == {(f.library, f.name) for f in FAMILIES.values()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", ("layer1", "layer2", "layer3")),
        ("vgg16-gap", ("stage2", "stage3", "stage4")),
        ("mobilenetv2_100", ("blocks.1", "blocks.2", "blocks.4")),
        ("efficientnet_lite0", ("blocks.1", "blocks.2", "blocks.4")),
        ("convnext_atto", ("stages.0", "stages.1", "stages.2")),
        ("vgg11", ("features.5", "features.10", "features.15")),
        ("swin_tiny_patch4_window7_224", ("layers.0", "layers.1", "layers.2")),
        ("vit_tiny_patch16_224", ()),
    ],
)
def test_the_papers_places_in_other_families(name: str, expected: tuple[str, ...]) -> None:
    """Ends of strides 4, 8 and 16, as after layer1, layer2 and layer3 of a ResNet."""
    pytest.importorskip("timm")
    model = build_backbone(name, 4).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert stages_at(model) == expected
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_module_names_work_beside_presets() -> None:
    models = pytest.importorskip("torchvision.models")
    model = mix_after(models.resnet18(weights=None), ["layer1.0", "stage2"], EFDMix(p=1.0))
    model(torch.randn(2, 3, 64, 64))
    with pytest.raises(ValueError, match=r"no stage 'layr1'. Did you mean 'layer1'.*stage1 \(layer1\), stage2 \(layer2\)"):
        mix_after(model, ["layr1"])


def test_the_papers_place_is_the_default() -> None:
    models = pytest.importorskip("torchvision.models")
    model = mix_after(models.resnet18(weights=None))
    mixed = [n for n, m in model.named_modules() if any(type(h).__name__ == "_MixOutput" for h in m._forward_hooks.values())]
    assert mixed == ["layer1", "layer2", "layer3"]


def test_wrapped_models_are_recognised_by_their_class() -> None:
    models = pytest.importorskip("torchvision.models")

    class Mine(models.ResNet):
        pass

    model = Mine(models.resnet.BasicBlock, [1, 1, 1, 1])
    assert stages_of(model)["stage1"] == "layer1"
