"""Candidates of an evaluation and the files they are loaded from."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from training import slim_vgg

from efdm.models import VGG, build
from efdm.models.weights import MissingWeights, checksum, save_encoder, save_network
from efdm.progress import Progress, ignore
from efdm.style.candidates import load_stylizer, network_candidate, optimizer_candidate, user_encoder
from efdm.style.stylizer import Stylizer


def test_a_network_at_two_strengths() -> None:
    stylizer = Stylizer(build("small"), "cpu")
    content, style = torch.rand(1, 3, 16, 24), torch.rand(1, 3, 16, 16)
    faint, strong = (network_candidate("mine", stylizer, method="efdm", strength=s) for s in (0.0, 1.0))
    assert (faint.label, strong.label) == ("mine efdm 0", "mine efdm 1")
    assert not torch.equal(*(c.run(content, style, ignore) for c in (faint, strong)))


def test_an_optimizer_reports_progress_and_identifies_its_encoder() -> None:
    encoder = slim_vgg()
    candidate = optimizer_candidate("cmd", encoder, iterations=2, weights="abc")
    reports: list[Progress] = []
    output = candidate.run(torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16), reports.append)
    assert output.shape == (1, 3, 16, 16)
    assert (candidate.label, [r.done / r.total for r in reports]) == ("optimizer cmd 2", [0.5, 1.0])
    found = [
        optimizer_candidate("gatys", e, weights=w).metadata for e in (encoder, slim_vgg("reflect")) for w in ("abc", "def")
    ]
    found.append(optimizer_candidate("gatys", encoder, iterations=5, weights="abc").metadata)
    assert len({json.dumps(dict(t)) for t in found}) == 5
    with pytest.raises(ValueError, match="did you mean 'gatys'"):
        optimizer_candidate("gaty", encoder)


def test_a_network_file_names_its_network_and_matcher(tmp_path: Path) -> None:
    network = build("small")
    file = tmp_path / "network.safetensors"
    save_network(network, file, {"encoder": "small", "method": "adain"})
    trained = load_stylizer("mine", file)
    assert (trained.name, trained.method, trained.stylizer.network.name) == ("mine", "adain", "small")
    assert trained.weights == checksum(file)[:12]
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="no network metadata"):
        load_stylizer("mine", tmp_path / "other.safetensors")
    with pytest.raises(MissingWeights, match="file not found"):
        load_stylizer("mine", tmp_path / "none.safetensors")


def test_a_vgg_file_is_the_encoder_of_networks_whose_encoder_is_not_in_the_package(tmp_path: Path) -> None:
    file, encoder = tmp_path / "network.safetensors", tmp_path / "encoder.safetensors"
    save_network(build("vgg16"), file, {"method": "efdm"})
    made = VGG("vgg16")
    save_encoder(made, encoder)
    trained = load_stylizer("mine", file, vgg=encoder)
    found = trained.stylizer.network.stages[0].get_submodule("conv4_1").weight
    assert torch.allclose(found, made.get_submodule("conv4_1").weight, atol=1e-3)
    assert trained.weights == f"{checksum(file)[:12]}+{checksum(encoder)[:12]}"
    assert user_encoder("vgg19", encoder) is None is user_encoder("small", encoder)
