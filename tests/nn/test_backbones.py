"""Insertion into the common families of torchvision and timm."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from efdm import EFDMix, active, domains_of_batch, mix_after, unmix
from efdm.nn import FAMILIES, feature_layers, find_stage, stages_at, stages_of

pytestmark = pytest.mark.slow

# name: (library, constructor arguments, input size), one model per family
MODELS = {
    "resnet18": ("torchvision", {}, 32),
    "vgg11_bn": ("torchvision", {}, 32),
    "mobilenet_v2": ("torchvision", {}, 32),
    "mobilenet_v3_small": ("torchvision", {}, 64),
    "efficientnet_b0": ("torchvision", {}, 32),
    "convnext_tiny": ("torchvision", {}, 32),
    "vit_b_16": ("torchvision", {}, 32),
    "swin_t": ("torchvision", {}, 32),
    "resnet10t": ("timm", {}, 32),
    "vgg11": ("timm", {}, 32),
    "mobilenetv2_050": ("timm", {}, 32),
    "mobilenetv3_small_050": ("timm", {}, 64),
    "convnext_atto": ("timm", {}, 64),
    "vit_tiny_patch16_224": ("timm", {"img_size": 32, "depth": 4}, 32),
    "swin_tiny_patch4_window7_224": ("timm", {"img_size": 32, "depths": (2, 1, 1, 1)}, 32),
    "convmixer_768_32": ("timm", {}, 28),
    "hiera_tiny_224": ("timm", {"img_size": 64, "stages": (1, 1, 1, 1)}, 64),
    "volo_d1_224": ("timm", {"img_size": 64}, 64),
    "cait_xxs24_224": ("timm", {"img_size": 32, "depth": 3}, 32),
    "xcit_nano_12_p16_224": ("timm", {"img_size": 32, "depth": 3}, 32),
    "convit_tiny": ("timm", {"img_size": 32, "depth": 4}, 32),
    # without a row: stages from timm's feature_info
    "regnetx_002": ("timm", {}, 64),
    "densenet121": ("timm", {"block_config": (2, 2, 2, 2)}, 64),
    "resnetv2_50": ("timm", {"layers": (1, 1, 1, 1)}, 64),
    "fastvit_t8": ("timm", {}, 64),
    "eva02_tiny_patch14_224": ("timm", {"img_size": 28, "depth": 3}, 28),
    "levit_128s": ("timm", {"img_size": 64}, 64),
    "levit_conv_128s": ("timm", {"img_size": 64}, 64),
    "beit_base_patch16_224": ("timm", {"img_size": 32, "depth": 3, "embed_dim": 96}, 32),
}


class Recording(EFDMix):
    """EFDMix that records ``(features, output, layout)`` of every call."""

    def __init__(self) -> None:
        super().__init__(p=1.0, alpha=5.0, pairing="crossdomain")
        self.calls: list[tuple[Tensor, Tensor, tuple[int, int]]] = []

    def forward(self, features: Tensor, domains: Tensor | None = None, layout: tuple[int, int] | None = None) -> Tensor:
        out = super().forward(features, domains, layout)
        self.calls.append((features, out, layout or (1, 0)))
        return out


def _vgg(models: ModuleType) -> nn.Module:
    with torch.device("meta"):  # the usual head has 120 million parameters
        model = models.VGG(nn.Sequential())
    model.features = models.vgg.make_layers([8, "M", 16, "M", 32, "M", 32, "M", 512, "M"], batch_norm=True)
    model.classifier = nn.Linear(512 * 7 * 7, 4)
    return model


def _convnext(models: ModuleType) -> nn.Module:
    widths = (96, 192, 384, 768)
    blocks = [models.convnext.CNBlockConfig(a, b, 1) for a, b in zip(widths, (*widths[1:], None), strict=True)]
    return models.ConvNeXt(blocks, num_classes=4)


# torchvision's classes with fewer layers
SMALL = {
    "vgg11_bn": _vgg,
    "convnext_tiny": _convnext,
    "vit_b_16": lambda models: models.VisionTransformer(32, 16, 3, 4, 96, 192, num_classes=4),
    "swin_t": lambda models: models.SwinTransformer([4, 4], 96, [1] * 4, [3, 6, 12, 24], [7, 7], num_classes=4),
}


def build(name: str) -> nn.Module:
    library, arguments, _ = MODELS[name]
    if name == "vgg11":  # narrow, because the head of timm's VGG has 120 million parameters
        vgg = pytest.importorskip("timm.models.vgg")
        return vgg.VGG(cfg=[8, "M", 16, "M", 32, "M", 32, "M", 32, "M"], num_classes=4)
    if library == "timm":
        return pytest.importorskip("timm").create_model(name, pretrained=False, num_classes=4, **arguments)
    models = pytest.importorskip("torchvision.models")
    if name in SMALL:
        return SMALL[name](models)
    return getattr(models, name)(weights=None, num_classes=4, **arguments)


def train_step(model: nn.Module, size: int) -> None:
    domains = torch.tensor([0, 0, 1, 1])
    model.train()(torch.randn(4, 3, size, size), domains=domains).sum().backward()


@pytest.mark.parametrize("name", MODELS)
def test_family(name: str) -> None:
    model, size, mix = build(name), MODELS[name][2], Recording()
    keys = list(model.state_dict())
    mix_after(model, ("stage1", "stage2", "stage3"), mix)
    assert list(model.state_dict()) == keys
    train_step(model, size)
    assert len(mix.calls) == 3
    widths = []
    for features, out, (channel_dim, prefix) in mix.calls:
        assert torch.equal(features[:, :prefix], out[:, :prefix])
        widths.append(features.shape[channel_dim])
        if features.flatten(1).shape[1] > widths[-1]:  # with one position, matching exchanges values only
            assert not torch.equal(features, out)
    assert widths == sorted(widths), "stages must go from shallow to deep"
    assert widths[0] >= 8, "the channel dimension must be the one that convolutions widen"
    mix.calls.clear()
    model.eval()
    with torch.no_grad():
        model(torch.randn(1, 3, size, size))
    assert not any(not torch.equal(features, out) for features, out, _ in mix.calls)


def test_every_row_of_families_is_tested() -> None:
    pytest.importorskip("timm")
    with torch.device("meta"):
        classes = {(cls.__module__.split(".")[0], cls.__name__) for name in MODELS for cls in type(build(name)).__mro__}
    assert classes >= FAMILIES.keys()


@pytest.mark.parametrize(
    ("name", "stage", "layout"),
    [
        ("swin_tiny_patch4_window7_224", "layers.0.blocks.1", (-1, 0)),
        ("swin_tiny_patch4_window7_224", "patch_embed", (-1, 0)),
        ("vit_tiny_patch16_224", "blocks.0.mlp", (-1, 1)),
        ("vit_tiny_patch16_224", "pos_drop", (-1, 1)),
        ("vit_tiny_patch16_224", "patch_embed", (-1, 0)),  # before the class token
        ("vit_tiny_patch16_224", "patch_embed.proj", (1, 0)),
        ("swin_t", "features.1.0", (-1, 0)),
        ("vit_b_16", "encoder.dropout", (-1, 1)),
        ("cait_xxs24_224", "blocks.0", (-1, 0)),  # before the class token
        ("xcit_nano_12_p16_224", "blocks.0", (-1, 0)),
        ("convit_tiny", "blocks.0", (-1, 0)),
        ("volo_d1_224", "network.0.0", (-1, 0)),
        ("volo_d1_224", "patch_embed", (1, 0)),
        ("levit_128s", "stages.1", (-1, 0)),
        ("levit_128s", "stem", (1, 0)),
        ("levit_conv_128s", "stages.1", (1, 0)),
    ],
)
def test_submodules_inherit_the_layout_of_the_family(name: str, stage: str, layout: tuple[int, int]) -> None:
    mix = Recording()
    model = mix_after(build(name), stage, mix)
    train_step(model, MODELS[name][2])
    features, out, found = mix.calls[0]
    assert found == layout
    assert features.shape[layout[0]] in (96, 128, 192, 256, 768), "the width of the model"
    assert out.shape == features.shape


def test_a_wrapped_backbone_keeps_its_layout() -> None:
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        swin, vit = build("swin_tiny_patch4_window7_224"), build("vit_tiny_patch16_224")
        features = timm.create_model("swin_tiny_patch4_window7_224", features_only=True)
    model = nn.ModuleDict({"swin": swin, "vit": nn.Sequential(vit, nn.Identity())})
    assert find_stage(model, "swin.layers.1").layout == (-1, 0)
    assert find_stage(model, "vit.0.blocks.1").layout == (-1, 1)
    assert not find_stage(model, "vit.1").layout_known
    assert find_stage(features, "stage2")[::2] == ("layers_1", (-1, 0))


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("resnet10t", "mix first"),
        ("resnet10t", "checkpoint first"),
        ("resnet10t", "copied"),
        ("mobilenetv2_050", "mix first"),
        ("mobilenetv3_small_050", "mix first"),
        ("vit_tiny_patch16_224", "mix first"),
    ],
)
def test_gradient_checkpointing_mixes_with_the_same_gradients(name: str, order: str) -> None:
    size, stages, grads = MODELS[name][2], ("stage1", "stage2"), []
    torch.manual_seed(0)
    plain = build(name)
    for checkpointing in (False, True):
        model = copy.deepcopy(plain)
        if checkpointing and order == "checkpoint first":
            model.set_grad_checkpointing(True)
        mix_after(model, stages, Recording())
        model.set_grad_checkpointing(checkpointing)
        if order == "copied":
            model = pickle.loads(pickle.dumps(copy.deepcopy(model)))
        torch.manual_seed(1)
        train_step(model, size)
        (mix,) = feature_layers(model)
        calls = mix.calls[:2]
        assert [torch.equal(features, out) for features, out, _ in calls] == [False, False]
        grads.append([p.grad for p in model.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)
    mix.calls.clear()
    with domains_of_batch(torch.tensor([0, 0, 1, 1])):
        model.forward_features(torch.randn(4, 3, size, size))  # checkpointed, and not through the model's hooks
    model.set_grad_checkpointing(False)
    train_step(model, size)
    assert len(mix.calls) == 4
    assert not any(module._forward_hooks for module in unmix(model).modules())


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("resnet18", {}, ("layer1", "layer2", "layer3")),
        ("mobilenetv2_100", {"in_chans": 1}, ("blocks.1", "blocks.2", "blocks.4")),
        ("efficientnet_lite0", {}, ("blocks.1", "blocks.2", "blocks.4")),
        ("convnext_atto", {}, ("stages.0", "stages.1", "stages.2")),
        ("regnetx_002", {}, ("s1", "s2", "s3")),
        ("tresnet_m", {}, ("body.layer1", "body.layer2", "body.layer3")),  # 16 pixels become channels of the first layer
        ("swin_tiny_patch4_window7_224", {"img_size": 64}, ("layers.0", "layers.1", "layers.2")),
        ("vit_tiny_patch16_224", {"img_size": 64}, ()),
    ],
)
def test_stages_at_strides_4_8_and_16(name: str, arguments: dict, expected: tuple[str, ...]) -> None:
    model = pytest.importorskip("timm").create_model(name, pretrained=False, **arguments).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert stages_at(model) == expected
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_stages_at_of_a_transformer() -> None:
    assert stages_at(build("vit_b_16")) == ()


def test_a_family_without_presets_lists_its_modules() -> None:
    with torch.device("meta"):
        model = pytest.importorskip("timm").create_model("hrnet_w18_small", pretrained=False)
    assert stages_of(model) == {}
    with pytest.raises(ValueError, match=r"no stage 'stage1'.*layer1, transition1, stage2"):
        mix_after(model)


def test_module_names_work_beside_presets() -> None:
    model = mix_after(build("resnet18"), ["layer1.0", "stage2"], EFDMix(p=1.0))
    model(torch.randn(2, 3, 32, 32))
    with pytest.raises(ValueError, match=r"no stage 'layr1'. Did you mean 'layer1'.*stage1 \(layer1\), stage2 \(layer2\)"):
        mix_after(model, ["layr1"])


def test_default_stages_are_those_of_the_paper() -> None:
    model = mix_after(build("resnet18"))
    mixed = [n for n, m in model.named_modules() if any(type(h).__name__ == "_MixOutput" for h in m._forward_hooks.values())]
    assert mixed == ["layer1", "layer2", "layer3"]


def test_subclasses_belong_to_the_family() -> None:
    models = pytest.importorskip("torchvision.models")

    class Subclass(models.ResNet):
        pass

    assert stages_of(Subclass(models.resnet.BasicBlock, [1, 1, 1, 1]))["stage1"] == "layer1"


def test_feature_extractors_of_torchvision() -> None:
    extraction = pytest.importorskip("torchvision.models.feature_extraction")
    model, x = mix_after(build("resnet18"), mix=EFDMix(p=1.0)), torch.randn(2, 3, 32, 32)
    with pytest.raises(TypeError, match=r"'layer1'.*create_feature_extractor"):
        extraction.create_feature_extractor(model, ["layer2"])
    with active(model, False):
        extractor = extraction.create_feature_extractor(model, ["layer4"]).eval()
    assert extractor(x)["layer4"].shape == (2, 512, 1, 1)
