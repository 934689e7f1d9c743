"""Ways that are measured: networks and optimisers, and the files they are opened from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from slim import slim_vgg

from efdm.models import VGG, build
from efdm.models.weights import checksum, save_encoder, save_network
from efdm.style.stylizer import Stylizer
from efdm.style.ways import network_way, open_pretrained, open_trained, optimiser_way


def test_a_network_is_a_way() -> None:
    stylizer = Stylizer(build("small"), "cpu")
    content, style = torch.rand(1, 3, 16, 24), torch.rand(1, 3, 16, 16)
    faint, strong = (network_way("mine", stylizer, method="efdm", strength=s) for s in (0.0, 1.0))
    assert (faint.label, strong.label) == ("mine efdm 0", "mine efdm 1")
    assert not torch.equal(*(w.run(content, style, lambda _: None) for w in (faint, strong)))
    with pytest.raises(ValueError, match="strength=2"):
        network_way("mine", stylizer, method="efdm", strength=2)
    with pytest.raises(ValueError, match="'adain'"):
        network_way("mine", stylizer, method="adin")


def test_an_optimiser_tells_its_share_and_what_it_looks_through() -> None:
    encoder = slim_vgg()
    way = optimiser_way("cmd", encoder, iterations=2, weights="abc")
    shares: list[float] = []
    output = way.run(torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16), shares.append)
    assert output.shape == (1, 3, 16, 16)
    assert (way.label, shares) == ("optimiser cmd 2", [0.5, 1.0])
    told = [optimiser_way("gatys", e, weights=w).told for e in (encoder, slim_vgg("reflect")) for w in ("abc", "def")]
    told.append(optimiser_way("gatys", encoder, iterations=5, weights="abc").told)
    assert len({json.dumps(dict(t)) for t in told}) == 5
    with pytest.raises(ValueError, match="did you mean 'gatys'"):
        optimiser_way("gaty", encoder)


def test_a_trained_file_says_what_it_is(tmp_path: Path) -> None:
    network = build("small")
    file = tmp_path / "network.safetensors"
    save_network(network, file, {"encoder": "small", "method": "adain"})
    trained = open_trained("mine", file)
    assert (trained.name, trained.method, trained.stylizer.network.name) == ("mine", "adain", "small")
    assert trained.weights == checksum(file)[:12]
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    for name in ("other", "text"):
        with pytest.raises(ValueError, match="does not say what it is"):
            open_trained("mine", tmp_path / f"{name}.safetensors")
    with pytest.raises(ValueError, match="there is no file"):
        open_trained("mine", tmp_path / "none.safetensors")


def test_every_network_can_be_given_its_encoder(tmp_path: Path) -> None:
    file, encoder = tmp_path / "network.safetensors", tmp_path / "encoder.safetensors"
    save_network(build("vgg19"), file, {"method": "efdm"})
    made = VGG("vgg19")
    save_encoder(made, encoder)
    trained = open_trained("mine", file, encoders={"vgg19": encoder, "vgg16": tmp_path / "another"})
    found = trained.stylizer.network.stages[0].get_submodule("conv4_1").weight
    assert torch.allclose(found, made.get_submodule("conv4_1").weight, atol=1e-3)
    assert trained.weights == f"{checksum(file)[:12]}+{checksum(encoder)[:12]}"


def test_the_shipped_network_takes_no_encoder(tmp_path: Path) -> None:
    trained = open_pretrained("small", encoders={"vgg16": tmp_path / "none"})
    assert (trained.name, trained.method, len(trained.weights)) == ("small", "efdm", 12)
    with pytest.raises(ValueError, match="did you mean 'small'"):
        open_pretrained("smal")
