"""OSNet and its agreement with torchreid."""

import hashlib
import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tolerances import close
from torch import Tensor, nn

from efdm import EFDMix, mix_after
from efdm.models import embedding, embedding_width
from efdm.models.backbones import build_backbone
from efdm.nn import stages_at

# name: parameters without classifier, and mean, deviation and first positive value of the embedding of `picture`, computed
# by torchreid 0.2.5 with the weights of `waves`
RECORDED = {
    "osnet_x1_0": (2_169_508, (1.172314, 1.434557, 1.564680)),
    "osnet_x0_5": (630_034, (1.576218, 1.916886, 4.785727)),
    "osnet_x0_25": (201_864, (0.587065, 0.726415, 0.409840)),
}
# SHA-256 of the sorted keys of torchreid's state dict, one per line
KEYS = "77b99dd5cb213476e5f874dc7d9470618c051c25062928f9512a365a12afd985"


def waves(model: nn.Module) -> dict[str, Tensor]:
    """Return a state dict of cosines, which do not depend on a random generator."""
    state = {}
    for number, (name, value) in enumerate(sorted(model.state_dict().items())):
        wave = torch.cos(torch.arange(value.numel(), dtype=torch.float64) * 1.7 + number).view(value.shape)
        if value.ndim > 1:
            state[name] = 2 * wave / math.sqrt(value[0].numel())
        elif value.ndim == 1:
            state[name] = wave / 10 + name.endswith(("running_var", "bn.weight", "fc.1.weight"))
        else:
            state[name] = value
    return state


def picture(height: int = 64, width: int = 32) -> Tensor:
    return torch.sin(torch.arange(3 * height * width, dtype=torch.float32) * 0.11).view(1, 3, height, width)


@pytest.mark.parametrize("name", RECORDED)
def test_names_sizes_and_outputs_equal_torchreid(name: str) -> None:
    model = build_backbone(name, 4).eval()
    assert hashlib.sha256("\n".join(sorted(model.state_dict())).encode()).hexdigest() == KEYS
    count, expected = RECORDED[name]
    assert sum(p.numel() for p in model.parameters()) - 4 * (512 + 1) == count
    model.load_state_dict(waves(model))
    with torch.no_grad():
        features, logits = embedding(model, picture())
    assert (features.shape[1], embedding_width(model), logits.shape) == (512, 512, (1, 4))
    found = (features.mean(), features.std(), features[features > 0][0])
    assert [x.item() for x in found] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", RECORDED)
def test_equals_torchreid(name: str, mode: str, tmp_path: Path) -> None:
    theirs = getattr(torchreid_osnet(), name)(num_classes=5, pretrained=False)
    theirs.load_state_dict(waves(theirs))
    torch.save({"state_dict": {f"module.{k}": v for k, v in theirs.state_dict().items()}}, tmp_path / "model.pth.tar")
    ours = build_backbone(name, 5, weights=tmp_path / "model.pth.tar").train(mode == "train")
    theirs.load_state_dict(ours.state_dict(), strict=True)
    theirs.train(mode == "train")
    x = torch.cat([picture(), picture().flip(2), -picture()])
    features, logits = embedding(ours, x)
    close(logits if mode == "train" else features, theirs(x))  # in eval mode, torchreid returns the features
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key].float(), value)


def torchreid_osnet() -> ModuleType:
    for name in ("torchreid.reid.models.osnet", "torchreid.models.osnet"):  # packages of PyPI and of the authors
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    pytest.skip("torchreid is not installed")


def test_mixes_after_conv2_and_conv3() -> None:
    model, seen = build_backbone("osnet_x0_25", 3), []
    assert stages_at(model) == ("conv2", "conv3")
    mix = EFDMix(p=1.0)
    mix.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1:]))
    mix_after(model, ("conv2", "conv3"), mix)
    model(torch.randn(2, 3, 64, 32)).sum().backward()
    assert seen == [(64, 8, 4), (96, 4, 2)]
