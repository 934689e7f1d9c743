"""VGG encoders: features, checkpoints of three formats, normalization; and decoders that mirror them."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tolerances import close
from torch import Tensor, nn
from training import WIDTHS, numbered_vgg, vgg_normalised

from efdm.models import VGG, MirrorDecoder, load_decoder, load_vgg, mean_activations, normalize
from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD, _pad_by_parts, conv_names, pad

ODD = (2, 3, 37, 30)  # not divisible by 4


@pytest.mark.parametrize(("name", "letter"), [("vgg16", "D"), ("vgg19", "E")])
def test_features_equal_torchvision(name: str, letter: str) -> None:
    vgg = pytest.importorskip("torchvision.models.vgg")
    plan = vgg.cfgs[letter]
    theirs = vgg.make_layers(plan[: plan.index(512) + 1])  # up to relu4_1
    state = {f"features.{k}": v for k, v in theirs.state_dict().items()}
    ours = load_vgg(VGG(name, padding="zeros", pooling="floor"), state)
    images = torch.rand(1, 3, 37, 30)
    x = (images - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)
    expected = []
    with torch.no_grad():
        for layer in theirs:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                expected.append(x)
        found = ours.taps(images, [conv.replace("conv", "relu") for conv in ours.names])
    for features, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(features, wanted, rtol=1e-4, atol=1e-6)


def test_taps_are_ordered_by_depth_and_the_encoder_ends_at_the_last() -> None:
    encoder = VGG("vgg16", "relu2_1")
    images = torch.rand(1, 3, 8, 8)
    before, after, deep = encoder.taps(images, ("relu2_1", "relu1_1", "conv1_1"))
    assert before.min() < 0
    assert torch.equal(before.relu(), after)
    assert torch.equal(deep, encoder(images))
    assert encoder.taps(images, ()) == []
    encoder = VGG("vgg19", "relu3_1")
    assert encoder.names == ("conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1")
    assert [n for n, _ in encoder.named_children()] == ["input", *encoder.names]
    assert encoder(torch.rand(1, 3, 8, 8)).shape[1] == 256
    assert VGG("vgg16", "conv1_2")(torch.rand(1, 3, 8, 8)).min() < 0  # ends before a ReLU


def test_wrong_names() -> None:
    for make, message in (
        (lambda: VGG("vgg11"), "'vgg11'"),
        (lambda: VGG("vgg16", "relu3_4"), "until='relu3_4'"),
        (lambda: VGG("vgg16", padding="mirror"), "'mirror'"),
        (lambda: VGG("vgg16", pooling="avg"), "'avg'"),
        (lambda: VGG("vgg16", "relu1_2").taps(torch.rand(1, 3, 4, 4), ["relu1_1", "relu2_1"]), "no relu2_1"),
        (lambda: MirrorDecoder("vgg16", "pool4"), "until='pool4'"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_images_smaller_than_the_stride() -> None:
    encoder = VGG("vgg16", "relu4_1")
    for size in ((1, 1), (1, 5), (2, 2), (3, 2)):
        features = encoder(torch.rand(1, 3, *size))
        assert features.shape == (1, 512, 1, 1)
        assert features.isfinite().all()


@pytest.mark.parametrize("border", ["reflect", "replicate"])
@pytest.mark.parametrize("size", [(2, 2), (5, 3), (4, 7)])
def test_pad_equals_torch(size: tuple[int, int], border: str, device: torch.device) -> None:
    x = torch.randn(2, 3, *size, device=device)
    expected = F.pad(x, (1, 1, 1, 1), mode=border)
    assert torch.equal(pad(x, border), expected)
    assert torch.equal(_pad_by_parts(x, border), expected)  # the GPU implementation
    thin = x[..., :1]  # always replicated
    assert torch.equal(pad(thin, border), F.pad(thin, (1, 1, 1, 1), mode="replicate"))
    assert torch.equal(pad(thin.mT, border), pad(thin).mT)


def test_checkpoints_of_timm_load_without_their_classifier() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("vgg16", pretrained=False, num_classes=0, mlp_ratio=1 / 64)
    classifier = {"classifier.0.weight": torch.zeros(4, 8), "head.fc.weight": torch.zeros(4, 4)}
    encoder = load_vgg(VGG("vgg16", "relu5_3", padding="zeros", pooling="floor"), {**model.state_dict(), **classifier})
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        theirs = model.features(encoder.input(images))
        torch.testing.assert_close(F.max_pool2d(encoder(images), 2), theirs, rtol=1e-4, atol=1e-6)


def test_vgg_normalised_replaces_the_input_layer() -> None:
    state = vgg_normalised()
    encoder = load_vgg(VGG("vgg19"), state)
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]
    inputs = 3
    for block, count in enumerate((2, 2, 4, 1)):
        for _ in range(count):
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(inputs, WIDTHS[block], 3), nn.ReLU()]
            inputs = WIDTHS[block]
        layers += [nn.MaxPool2d(2, ceil_mode=True)]
    whole = nn.Sequential(*layers[:-1])
    whole.load_state_dict({k: v for k, v in state.items() if int(k.split(".")[0]) <= 29})
    images = torch.rand(ODD)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), whole(images), rtol=1e-4, atol=1e-4)


def test_checkpoint_of_a_deeper_encoder() -> None:
    whole = VGG("vgg16", "relu3_1")
    nn.init.normal_(whole.input.weight)
    short = load_vgg(VGG("vgg16", "relu2_1"), whole.state_dict())
    images = torch.rand(1, 3, 9, 9)
    assert torch.equal(short(images), whole.taps(images, ["relu2_1"])[0])


WRONG: dict[str, tuple[tuple[str, ...], Callable[[], dict[str, Tensor]], str]] = {
    "too_short": (("vgg16", "relu5_1"), lambda: numbered_vgg("vgg16", blocks=4), "missing conv5_1.weight"),
    "16_in_19": (("vgg19",), lambda: numbered_vgg("vgg16", blocks=4), "unexpected features.17"),
    "19_in_a_short_16": (("vgg16", "relu2_1"), lambda: numbered_vgg("vgg19", blocks=4), "unexpected features.16"),
    "normalised_19": (("vgg16", "relu2_1"), vgg_normalised, "unexpected 25.weight"),
    "batch_norm": (("vgg16",), lambda: {"features.1.weight": torch.ones(64)}, "unexpected features.1.weight"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_checkpoints(case: str) -> None:
    encoder, state, message = WRONG[case]
    with pytest.raises(ValueError, match=rf"checkpoint.*{message}"):
        load_vgg(VGG(*encoder), state())


@pytest.fixture
def encoder() -> VGG:
    return load_vgg(VGG("vgg16", "relu3_1"), numbered_vgg("vgg16", blocks=4))


def test_normalized_means_are_one(encoder: VGG) -> None:
    batches = [torch.rand(2, 3, 24, 20), torch.rand(1, 3, 17, 31)]
    means = mean_activations(encoder, batches)
    assert max((m - 1).abs().max() for m in means.values()) > 0.1
    for name, mean in mean_activations(normalize(encoder, means), batches).items():
        alive = means[name] > 0
        assert alive.float().mean() > 0.8
        torch.testing.assert_close(mean, alive.float(), rtol=1e-4, atol=1e-4)


def test_means_do_not_depend_on_the_batch_size(encoder: VGG) -> None:
    pictures = torch.rand(3, 3, 16, 16)
    apart, together = mean_activations(encoder, pictures.split(1)), mean_activations(encoder, [pictures])
    each = [mean_activations(encoder, [p])["conv2_1"] for p in pictures.split(1)]
    close(apart["conv2_1"], together["conv2_1"])
    close(apart["conv2_1"], torch.stack(each).mean(0))
    with pytest.raises(ValueError, match="needs at least one batch"):
        mean_activations(encoder, [])
    with pytest.raises(ValueError, match=r"conv3_1.*relu3_1"):
        normalize(encoder, {name: mean for name, mean in together.items() if name != "conv3_1"})


def test_normalizing_only_rescales_channels(encoder: VGG) -> None:
    taps = [n.replace("conv", "relu") for n in encoder.names]
    images = torch.rand(1, 3, 19, 22)
    before = encoder.taps(images, taps)
    means = {n: torch.rand(WIDTHS[int(n[4]) - 1]) + 0.5 for n in encoder.names}
    for name, old, new in zip(encoder.names, before, normalize(encoder, means).taps(images, taps), strict=True):
        torch.testing.assert_close(new * means[name].view(-1, 1, 1), old, rtol=1e-4, atol=1e-5)


def test_silent_channel_keeps_its_scale(encoder: VGG) -> None:
    with torch.no_grad():
        encoder.get_submodule("conv1_2").bias[3] = -1e4  # type: ignore[index, operator]
    images = torch.rand(2, 3, 16, 16)
    means = mean_activations(encoder, [images])
    assert means["conv1_2"][3] == 0
    normalize(encoder, means)
    assert all(p.isfinite().all() for p in encoder.parameters())
    assert encoder.get_submodule("conv1_2").bias[3] == -1e4  # type: ignore[index]
    after = mean_activations(encoder, [images])["conv2_1"]
    torch.testing.assert_close(after, (means["conv2_1"] > 0).float(), rtol=1e-4, atol=1e-4)


def test_an_encoder_compiles_as_one_graph() -> None:
    encoder, image = VGG("vgg19", "relu2_1"), torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        found = torch.compile(encoder.taps, fullgraph=True, backend="eager")(image, ("relu1_1", "relu2_1"))
        for one, other in zip(found, encoder.taps(image, ("relu1_1", "relu2_1")), strict=True):
            torch.testing.assert_close(one, other)


def mirrored() -> nn.Sequential:
    """The decoder of pytorch-AdaIN for VGG-19; "up" stands for upsampling."""
    widths = [512, 256, "up", 256, 256, 256, 128, "up", 128, 64, "up", 64, 3]
    layers: list[nn.Module] = []
    inputs = widths[0]
    for width in widths[1:]:
        if width == "up":
            layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
        else:
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(inputs, width, 3), nn.ReLU()]
            inputs = width
    return nn.Sequential(*layers[:-1])


def test_vgg19_decoder_equals_the_published_one() -> None:
    whole = mirrored()
    decoder = load_decoder(MirrorDecoder("vgg19"), whole.state_dict())
    features = torch.randn(2, 512, 4, 5)
    with torch.no_grad():
        torch.testing.assert_close(decoder(features), whole(features))
    assert decoder(features).shape == (2, 3, 32, 40)


def test_vgg16_decoder_mirrors_vgg16() -> None:
    decoder = MirrorDecoder("vgg16", "relu3_2")
    found = [(c.in_channels, c.out_channels, up) for c, up in zip(decoder.convs, decoder.up_after, strict=True)]
    channels = [(256, 256), (256, 128), (128, 128), (128, 64), (64, 64), (64, 3)]
    assert found == [(*pair, up) for pair, up in zip(channels, (False, True, False, True, False, False), strict=True)]
    assert len(MirrorDecoder("vgg16").convs) == len(conv_names("vgg16", "relu4_1")) == 8


def test_decoders_of_other_networks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a decoder of vgg16 from relu4_1: unexpected convs\.8\.weight"):
        load_decoder(MirrorDecoder("vgg16"), mirrored().state_dict())
    with pytest.raises(ValueError, match=r"missing convs\.0\.weight"):
        load_decoder(MirrorDecoder("vgg16"), {f"layer.{i}.conv": torch.zeros(1) for i in range(8)})
