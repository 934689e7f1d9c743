"""Classifiers by name, with weights from timm or from files."""

import hashlib
import io
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tolerances import close
from torch import Tensor, nn

from efdm import EFDMix, mix_after
from efdm.errors import SettingError
from efdm.models import backbones
from efdm.models.backbones import BACKBONES, build_backbone, weights_checksum
from efdm.models.weights import FOLDER_VARIABLE, MissingWeights

timm = pytest.importorskip("timm")
constants = pytest.importorskip("huggingface_hub").constants
SHARED = Path(__file__).resolve().parents[3] / "shared" / "weights"
SMALL = "resnet10t"  # the smallest ResNet of timm


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """A checkpoint for three classes with positive values, unlike those of a new model."""
    made = build_backbone(SMALL, 3).state_dict()
    return {k: torch.rand_like(v) if v.is_floating_point() else v + 5 for k, v in made.items()}


def saved(state: dict[str, Tensor], path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file({k: v.contiguous() for k, v in state.items()}, path)
    else:
        torch.save(state, path)
    return str(path)


def same(model: nn.Module, state: dict[str, Tensor], but: str = "none") -> bool:
    return all(torch.equal(v, state[k]) for k, v in model.state_dict().items() if not k.startswith(but))


@pytest.mark.parametrize("name", [*BACKBONES, SMALL])
def test_output_shape_and_stages(name: str) -> None:
    model = mix_after(build_backbone(name, 5), ("stage1", "stage2"), EFDMix(p=1.0))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 5)


def test_wrong_names_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"'resnet81'.*did you mean .*'resnet18'"):
        build_backbone("resnet81", 2)
    with pytest.raises(ValueError, match=r"classes.* 0"):
        build_backbone("tiny", 0)
    with pytest.raises(ValueError, match="tiny is not a timm model"):
        build_backbone("tiny", 2, weights="timm")
    monkeypatch.setitem(sys.modules, "timm", None)
    build_backbone("tiny", 2)
    with pytest.raises(ImportError, match=r"efdm\[vision\]"):
        build_backbone(SMALL, 2)


def test_failed_downloads_of_timm_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:

    def offline(name: str, pretrained: bool, **settings: object) -> nn.Module:
        assert pretrained
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr(backbones, "_is_reachable", lambda _: True)
    with pytest.raises(MissingWeights, match=r"resnet10t.*no route to host.*huggingface.co/timm/resnet10t") as error:
        build_backbone(SMALL, 2, weights="timm")
    assert error.value.settings == ("weights",)


@pytest.mark.parametrize("classes", [3, 5], ids=["same_classes", "other_classes"])
def test_classifier_of_timm_is_kept_for_its_classes(monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    given = build_backbone(SMALL, classes)
    given.pretrained_cfg = {"classifier": "fc", "num_classes": 3}
    before = given.fc.weight.detach().clone()
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: given)
    monkeypatch.setattr(backbones, "_is_reachable", lambda _: True)
    assert torch.equal(build_backbone(SMALL, classes, weights="timm").fc.weight, before) == (classes == 3)


@pytest.mark.parametrize("answer", [True, False], ids=["online", "offline"])
def test_unreachable_hub_switches_to_the_cache(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    """Without the setting, the client of the hub would retry each file six times before using its cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(backbones, "_is_reachable", lambda _: answer)
    seen = []
    made = nn.Sequential()
    made.classifier = nn.Linear(2, 2)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: seen.append(constants.HF_HUB_OFFLINE) or made)
    build_backbone(SMALL, 2, weights="timm")
    build_backbone(SMALL, 2, weights="random")
    assert seen == [not answer, False]


def test_server_errors_count_as_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(request: urllib.request.Request, timeout: float) -> io.BytesIO:
        if "error" in request.full_url:
            raise urllib.error.HTTPError(request.full_url, 503, "busy", {}, None)  # type: ignore[arg-type]
        if "unknown" in request.full_url:
            raise urllib.error.URLError("no route to host")
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    found = [backbones._is_reachable(f"https://{host}.example") for host in ("hub", "error", "unknown")]
    assert found == [True, True, False]


def test_checksum_follows_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(b"one")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    first = weights_checksum(path)
    assert first == weights_checksum("w.pth") == hashlib.sha256(b"one").hexdigest()[:12]
    path.write_bytes(b"another")
    assert weights_checksum(path) != first
    assert [weights_checksum(name) for name in ("random", "timm", "nowhere.pth")] == [""] * 3


def test_file_is_found_by_name_in_the_weights_folder(
    state: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(state, tmp_path / "mine.safetensors")
    with pytest.raises(MissingWeights, match=r"mine.safetensors.*'random', 'timm'"):
        build_backbone(SMALL, 3, weights="mine.safetensors")
    with pytest.raises(MissingWeights, match=f"{tmp_path} is a folder"):
        build_backbone(SMALL, 3, weights=tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert same(build_backbone(SMALL, 3, weights="mine.safetensors"), state)


@pytest.mark.parametrize("prefix", ["", "model.", "module.backbone."])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_prefixes_of_wrappers_are_stripped(prefix: str, name: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    file = saved({prefix + k: v for k, v in state.items()}, tmp_path / name)
    assert same(build_backbone(SMALL, 3, weights=file), state)


CLASSIFIERS = {
    "other_classes": lambda state: {**state, "fc.weight": torch.rand(1000, 512), "fc.bias": torch.rand(1000)},
    "missing": lambda state: {k: v for k, v in state.items() if not k.startswith("fc.")},
    "no_bias": lambda state: {k: v for k, v in state.items() if k != "fc.bias"},
}


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_classifier_that_does_not_fit_is_initialized(case: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    file = saved(CLASSIFIERS[case](state), tmp_path / "w.safetensors")
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(build_backbone(SMALL, 3, weights=file))
    model, again, other = made
    assert same(model, state, but="fc.")
    assert same(again, model.state_dict())
    assert not same(other, model.state_dict())
    assert model.fc.weight.min() < 0  # the checkpoint has positive values only
    assert model.fc.bias.min() < 0


def test_new_classifier_has_small_weights(tmp_path: Path) -> None:
    """timm draws the classifier of MobileNetV2 from +-1/sqrt(7), so the first loss on PACS was 4 rather than log 7."""
    kept = {k: v for k, v in build_backbone("mobilenetv2_100", 7).state_dict().items() if not k.startswith("classifier.")}
    model = build_backbone("mobilenetv2_100", 7, weights=saved(kept, tmp_path / "w.safetensors"))
    assert 0 < model.classifier.weight.abs().max() <= model.classifier.in_features**-0.5


def test_half_precision_becomes_float32_and_counters_may_be_missing(state: dict[str, Tensor], tmp_path: Path) -> None:
    halves = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    model = build_backbone(SMALL, 3, weights=saved(halves, tmp_path / "w.pth"))
    assert all(v.dtype == (torch.float32 if v.is_floating_point() else torch.int64) for v in model.state_dict().values())
    assert torch.equal(model.fc.weight, halves["fc.weight"].float())
    assert model.bn1.num_batches_tracked == 5
    old = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    assert build_backbone(SMALL, 3, weights=saved(old, tmp_path / "w.pth")).bn1.num_batches_tracked == 0


def test_checkpoints_that_do_not_fit(state: dict[str, Tensor], tmp_path: Path) -> None:
    renamed = {k.replace("layer3", "blocks"): v for k, v in state.items()}
    other_size = {**state, "layer1.0.conv1.weight": torch.zeros(1, 2, 3, 3)}
    for wrong, message in (
        (
            renamed,
            r"w.safetensors: .*resnet10t: missing layer3\S*, layer3\S*, \S* and \d+ more.* unexpected blocks\S*",
        ),
        (other_size, r"layer1.0.conv1.weight has shape \(1, 2, 3, 3\), expected \(64, 64, 3, 3\)"),
    ):
        with pytest.raises(SettingError, match=message) as caught:
            build_backbone(SMALL, 3, weights=saved(wrong, tmp_path / "w.safetensors"))
        assert caught.value.settings == ("weights", "backbone")


def test_torchvision_resnet_loads_into_timm(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    theirs = models.resnet18(weights=None).eval()
    model = build_backbone("resnet18", 1000, weights=saved(theirs.state_dict(), tmp_path / "w.pth")).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        close(model(x), theirs(x))


@torch.no_grad()
def test_resnet50_v1_skips_odd_positions_before_its_3x3_convolutions() -> None:
    x = torch.randn(1, 256, 8, 8)
    changed = x + (torch.arange(8) % 2) * torch.randn(1, 256, 8, 8)  # odd columns only
    for name, skips in (("resnet50_v1", True), ("resnet50", False)):
        model = build_backbone(name, 2).eval()
        nn.init.ones_(model.layer2[0].bn3.weight)  # timm starts with zero, which hides the convolutions
        assert torch.equal(model.layer2(x), model.layer2(changed)) == skips
        assert model.layer4(model.layer3(model.layer2(x))).shape == (1, 2048, 1, 1)


def test_prelu_replaces_relu_and_files_may_lack_its_slopes(tmp_path: Path) -> None:
    plain = build_backbone("resnet18", 3).state_dict()
    model = build_backbone("resnet18_prelu", 3, weights=saved(plain, tmp_path / "w.safetensors"))
    own = model.state_dict()
    slopes = [name for name in own if name not in plain]
    kinds = [type(m).__name__ for m in model.modules()]
    assert (len(slopes), kinds.count("PReLU"), kinds.count("ReLU")) == (17, 17, 0)
    assert all(own[name] == torch.tensor([0.25]) for name in slopes)
    assert all(torch.equal(own[name], value) for name, value in plain.items())
    own[slopes[3]] += 1
    assert same(build_backbone("resnet18_prelu", 3, weights=saved(own, tmp_path / "v.safetensors")), own)
    del own[slopes[3]]
    with pytest.raises(ValueError, match=rf"missing {slopes[3]}"):
        build_backbone("resnet18_prelu", 3, weights=saved(own, tmp_path / "u.safetensors"))


@pytest.mark.parametrize(("name", "block"), [("resnet18_prelu", "layer1.0"), ("osnet_x1_0", "conv2.1")])
def test_blocks_compile_without_graph_breaks(name: str, block: str) -> None:
    torch._dynamo.reset()
    layer = build_backbone(name, 2).get_submodule(block)
    x = torch.randn(2, 256 if name == "osnet_x1_0" else 64, 8, 4)
    close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))


PUBLISHED = {  # name: file, and the name of a tensor
    "mobilenetv2_100": ("mobilenetv2_100.timm.fp16.safetensors", "conv_stem.weight"),
    "resnet18": ("resnet18.timm.fp16.safetensors", "layer4.1.conv2.weight"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files(name: str) -> None:
    file, tensor = PUBLISHED[name]
    path = SHARED / file
    if not path.is_file():
        pytest.skip(f"file not found: {file}")
    model = build_backbone(name, 7, weights=path).eval()
    assert torch.equal(model.state_dict()[tensor], load_file(path)[tensor].float())
    with torch.no_grad():
        assert model(torch.randn(1, 3, 64, 64)).isfinite().all()
