"""Loading and saving encoders and networks."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from training import numbered_vgg, randomize, vgg_normalised

from efdm.data import read_picture, resize_short_side
from efdm.data.embedded import photos
from efdm.errors import DamagedFileError
from efdm.models import VGG, MirrorDecoder, build, mean_activations, normalize
from efdm.models import weights as module
from efdm.models.weights import MissingWeights, find, load_encoder, load_network, load_normalized_encoder, pretrained, read


def test_encoder_from_safetensors_and_pth(folder: Path) -> None:
    state = numbered_vgg("vgg16", blocks=4)
    save_file(state, folder / "vgg16.safetensors")
    torch.save(state, folder / "mine.pth")
    images = torch.rand(1, 3, 16, 16)
    one = load_encoder("vgg16", "relu2_1")
    two = load_encoder("vgg16", "relu2_1", path=folder / "mine.pth")
    assert not one.training
    assert torch.equal(one(images), two(images))


def test_imagenet_weights_are_normalized_once(folder: Path) -> None:
    save_file(numbered_vgg("vgg16", blocks=4), folder / "vgg16.safetensors")
    means = read(find("vgg16-means"))
    plain = load_encoder("vgg16", "relu1_1")
    scaled = load_normalized_encoder(VGG("vgg16", "relu1_1"))
    images = torch.rand(1, 3, 8, 8)
    torch.testing.assert_close(scaled(images) * means["conv1_1"].view(-1, 1, 1), plain(images))
    module.save_encoder(scaled, folder / "deep" / "own.safetensors")
    again = load_normalized_encoder(VGG("vgg16", "relu1_1"), path=folder / "deep" / "own.safetensors")
    assert torch.equal(again.conv1_1.weight, scaled.conv1_1.weight.half().float())


def test_normalized_file_is_rejected_as_imagenet_weights(folder: Path) -> None:
    module.save_encoder(VGG("vgg16", "relu1_1"), folder / "own.safetensors")
    published = {"0.weight": torch.randn(3, 3, 1, 1), "0.bias": torch.zeros(3)}
    torch.save(published, folder / "vgg_normalised.pth")
    for name in ("own.safetensors", "vgg_normalised.pth"):
        with pytest.raises(ValueError, match=f"{name} is normalized.*vgg16-397923af"):
            load_encoder("vgg16", "relu1_1", path=folder / name)


def test_encoder_that_overflows_float16_is_saved_in_float32(folder: Path) -> None:
    encoder = VGG("vgg16", "relu1_1")
    module.save_encoder(encoder, folder / "usual.safetensors")
    assert all(v.dtype == torch.float16 for v in read(folder / "usual.safetensors").values())
    means = torch.ones(64)
    means[5] = 1e-7
    normalize(encoder, {"conv1_1": means})
    assert encoder.conv1_1.weight.abs().max() > 65504
    module.save_encoder(encoder, folder / "rare.safetensors")
    again = load_normalized_encoder(VGG("vgg16", "relu1_1"), path=folder / "rare.safetensors")
    assert torch.equal(again.conv1_1.weight, encoder.conv1_1.weight)
    means[5] = 1e-45
    normalize(encoder, {"conv1_1": means})
    with pytest.raises(ValueError, match=r"conv1_1\.weight.*not finite"):
        module.save_encoder(encoder, folder / "never.safetensors")
    assert not (folder / "never.safetensors").exists()


def test_vgg19_needs_a_normalized_file(folder: Path) -> None:
    save_file(numbered_vgg("vgg19", blocks=1), folder / "vgg19.safetensors")
    with pytest.raises(ValueError, match=r"vgg19\.safetensors: .*missing conv2_1"):
        load_encoder("vgg16", "relu2_1", path=folder / "vgg19.safetensors")
    with pytest.raises(ValueError, match=r"vgg19.safetensors is not normalized.*vgg19-normalized\.safetensors"):
        load_normalized_encoder(VGG("vgg19", "relu1_1"), path=folder / "vgg19.safetensors")


def test_means_fit_vgg16() -> None:
    means = read(find("vgg16-means"))
    encoder = VGG("vgg16", "relu5_3")
    assert {n: m.shape for n, m in means.items()} == {n: (encoder.get_submodule(n).out_channels,) for n in encoder.names}
    assert all((m > 0).all() for m in means.values())


def test_normalized_imagenet_weights_have_means_near_one() -> None:
    try:
        encoder = load_normalized_encoder(VGG("vgg16"))
    except MissingWeights:
        pytest.skip("no ImageNet weights")
    pictures = [read_picture(path).rgb[None, :, :160, :160] for path in photos().values()]
    for mean in mean_activations(encoder, pictures).values():
        assert 0.5 < mean.median() < 2


@pytest.mark.parametrize("name", ["small", "vgg16"])
def test_network_round_trip(name: str, tmp_path: Path) -> None:
    network = randomize(build(name))
    for dtype, same in (("float32", torch.float32), ("float16", torch.float16)):
        path = tmp_path / "deep" / f"{dtype}.safetensors"
        module.save_network(network, path, {"lr": 0.1, "out": tmp_path}, dtype)
        again = load_network(build(name), path)
        trained = [network, again] if name == "small" else [network.decoder, again.decoder]
        for a, b in zip(*(m.state_dict().values() for m in trained), strict=True):
            assert b.dtype == torch.float32
            assert torch.equal(a.to(same).float(), b)
        stored = module.metadata(path)
        assert stored["network"] == name
        before = path.read_bytes()
        for _ in range(3):  # safetensors itself writes metadata in random order
            module.save_network(network, path, {"lr": 0.1, "out": tmp_path}, dtype)
            assert path.read_bytes() == before
        assert json.loads(stored["settings"]) == {"lr": 0.1, "out": str(tmp_path)}
        assert any(k.startswith("stages.") for k in read(path)) == (name == "small")  # the encoder of a VGG is not saved


def test_files_of_other_networks(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.safetensors" for name in ("small", "vgg16")}
    for name, file in files.items():
        module.save_network(build(name), file, {})
    for network, other in [("vgg16", "small"), ("small", "vgg16"), ("vgg19", "vgg16")]:
        with pytest.raises(ValueError, match=rf"{other}\.safetensors: the checkpoint does not fit .*{network}.*missing"):
            load_network(build(network), files[other])


def test_checksum_is_checked_for_shipped_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module.save_network(randomize(build("small")), tmp_path / "small.safetensors", {})
    network = pretrained("small", weights=tmp_path / "small.safetensors")
    assert not network.training
    assert not any(p.requires_grad for p in network.parameters())
    monkeypatch.setattr(module, "SHIPPED", tmp_path)
    with pytest.raises(ValueError, match=r"small\.safetensors.*SHA-256.*reinstall"):
        pretrained("small")


def test_network_is_read_from_the_metadata(folder: Path) -> None:
    save_file(numbered_vgg("vgg16", blocks=4), folder / "vgg16.safetensors")
    module.save_network(build("vgg16"), folder / "deep.safetensors", {})
    assert pretrained(weights=folder / "deep.safetensors").name == "vgg16"
    assert pretrained("vgg16", weights=folder / "deep.safetensors").name == "vgg16"
    assert pretrained().name == "small"
    with pytest.raises(ValueError, match=r"deep.safetensors holds the network vgg16, not small"):
        pretrained("small", weights=folder / "deep.safetensors")
    save_file(read(folder / "deep.safetensors"), folder / "bare.safetensors")
    with pytest.raises(ValueError, match=r"bare.safetensors does not name its network.*small, vgg16"):
        pretrained(weights=folder / "bare.safetensors")
    assert pretrained("vgg16", weights=folder / "bare.safetensors").name == "vgg16"
    with pytest.raises(MissingWeights, match=r"none\.safetensors"):
        pretrained(weights=folder / "none.safetensors")


def test_the_vgg19_of_the_package_is_normalized() -> None:
    encoder = load_normalized_encoder(VGG("vgg19"))
    photo = resize_short_side(read_picture(photos()["coffee"]).rgb, 128)[None]
    with torch.inference_mode():
        means = [features.mean().item() for features in encoder.taps(photo, ["relu1_2", "relu2_2", "relu3_4"])]
    assert all(0.5 < mean < 2 for mean in means)


def test_pretrained_vgg19_loads_the_published_pair(folder: Path) -> None:
    encoder = vgg_normalised()
    torch.save(encoder, folder / "vgg_normalised.pth")
    decoder = MirrorDecoder("vgg19").state_dict()
    torch.save({f"{3 * int(k.split('.')[1]) + 1}.{k.split('.')[2]}": v for k, v in decoder.items()}, folder / "decoder.pth")
    network = pretrained(weights=folder / "decoder.pth", vgg=folder / "vgg_normalised.pth")
    assert network.name == "vgg19"
    assert module.describe(folder / "decoder.pth") == ("vgg19", "adain")
    assert torch.equal(network.stages[0].input.weight, encoder["0.weight"])
    assert torch.equal(network.stages[0].conv4_1.weight, encoder["29.weight"])  # not rescaled
    assert all(torch.equal(a, b) for a, b in zip(network.decoder.state_dict().values(), decoder.values(), strict=True))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_instead_of_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pth")
    with pytest.raises(DamagedFileError, match=r"pipe\.pth.*it is a pipe"):
        read(tmp_path / "pipe.pth")


def test_corrupt_files_are_named(folder: Path) -> None:
    file = folder / "vgg16.safetensors"
    save_file(numbered_vgg("vgg16", blocks=1), file)
    whole = file.read_bytes()
    for damaged in (bytes(len(whole)), whole[: len(whole) // 2], b"hello"):
        file.write_bytes(damaged)
        for load in (lambda: load_encoder("vgg16", "relu1_1"), lambda: pretrained(weights=file)):
            with pytest.raises(DamagedFileError, match=r"vgg16\.safetensors"):
                load()
