from __future__ import annotations

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
from training import numbered_vgg

from efdm import EFDMix, mix_after
from efdm.models import backbones
from efdm.models.backbones import OWN, build_backbone, weights_checksum
from efdm.models.weights import FOLDER_VARIABLE, MissingWeights

SHARED = Path(__file__).resolve().parents[3] / "shared" / "weights"
SMALL = "resnet10t"  # the least of timm's ResNets


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """A checkpoint for three classes, with numbers that no fresh model has."""
    pytest.importorskip("timm")
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


# --- which model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OWN, SMALL])
def test_a_number_for_every_class_and_stages_to_mix_after(name: str) -> None:
    model = build_backbone(name, 5)
    keys = list(model.state_dict())
    mix_after(model, ("stage1", "stage2"), EFDMix(p=1.0))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 5)
    assert list(model.state_dict()) == keys


def test_random_weights_follow_torchs_seed() -> None:
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(build_backbone("tiny", 4).state_dict()["stage1.0.weight"])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_a_name_that_nobody_has() -> None:
    pytest.importorskip("timm")
    with pytest.raises(ValueError, match=r"'resnet81' is no model of timm .*did you mean .*'resnet18'"):
        build_backbone("resnet81", 2)


def test_no_classes() -> None:
    with pytest.raises(ValueError, match="classes=0"):
        build_backbone("tiny", 0)


def test_without_timm_ours_are_there_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    build_backbone("tiny", 2)
    with pytest.raises(ImportError, match="pip install timm"):
        build_backbone(SMALL, 2)


def test_timm_that_cannot_load_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm")

    def offline(name: str, pretrained: bool, **settings: object) -> nn.Module:
        assert pretrained
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr(backbones, "_answers", lambda _: True)
    with pytest.raises(MissingWeights, match=r"timm could not load.*no route to host.*get the file yourself"):
        build_backbone(SMALL, 2, weights="timm")
    with pytest.raises(ValueError, match="tiny is not one of timm's models"):
        build_backbone("tiny", 2, weights="timm")


@pytest.mark.parametrize("classes", [3, 5], ids=["its_own", "others"])
def test_timms_classifier_stays_where_it_has_the_classes(monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    timm = pytest.importorskip("timm")
    given = build_backbone(SMALL, classes)
    given.pretrained_cfg = {"classifier": "fc", "num_classes": 3}
    before = given.fc.weight.detach().clone()
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: given)
    monkeypatch.setattr(backbones, "_answers", lambda _: True)
    assert torch.equal(build_backbone(SMALL, classes, weights="timm").fc.weight, before) == (classes == 3)


@pytest.mark.parametrize("answer", [True, False], ids=["online", "offline"])
def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    """Its own client would try each file six times before it looks into its cache."""
    timm, hub = pytest.importorskip("timm"), pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(backbones, "_answers", lambda _: answer)
    seen = []
    made = nn.Sequential()
    made.classifier = nn.Linear(2, 2)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: seen.append(hub.constants.HF_HUB_OFFLINE) or made)
    build_backbone(SMALL, 2, weights="timm")
    build_backbone(SMALL, 2, weights="random")
    assert seen == [not answer, False]


def test_who_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a server is an answer; no server is none."""

    def opened(request: urllib.request.Request, timeout: float) -> io.BytesIO:
        if "error" in request.full_url:
            raise urllib.error.HTTPError(request.full_url, 503, "busy", {}, None)  # type: ignore[arg-type]
        if "nobody" in request.full_url:
            raise urllib.error.URLError("no route to host")
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", opened)
    assert [backbones._answers(f"https://{who}.example") for who in ("hub", "error", "nobody")] == [True, True, False]


@pytest.mark.parametrize("weights", ["random", "timm", "nowhere.pth"])
def test_what_is_no_file_has_no_checksum(weights: str) -> None:
    assert weights_checksum(weights) == ""


def test_a_checksum_is_computed_once_for_each_state_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    monkeypatch.setattr("efdm.models.weights.checksum", lambda path: computed.append(path) or f"{len(computed):012d}more")
    path = tmp_path / "w.pth"
    path.write_bytes(b"one")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert weights_checksum(path) == weights_checksum("w.pth") == "000000000001"
    path.write_bytes(b"another")
    assert weights_checksum(path) == "000000000002"


# --- weights from a file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["whole.safetensors", "whole.pth"])
def test_a_whole_checkpoint_comes_back(name: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    assert same(build_backbone(SMALL, 3, weights=saved(state, tmp_path / name)), state)


def test_a_file_is_found_by_its_name_where_weights_are(
    state: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(state, tmp_path / "mine.safetensors")
    with pytest.raises(MissingWeights, match=r"weights='mine.safetensors' is no file.*'random', 'timm'"):
        build_backbone(SMALL, 3, weights="mine.safetensors")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert same(build_backbone(SMALL, 3, weights="mine.safetensors"), state)


@pytest.mark.parametrize("prefix", ["module.", "model.", "backbone.", "module.backbone."])
def test_wrappers_are_taken_off(prefix: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    file = saved({prefix + k: v for k, v in state.items()}, tmp_path / "w.safetensors")
    assert same(build_backbone(SMALL, 3, weights=file), state)


CLASSIFIERS = {
    "of_other_classes": lambda state: {**state, "fc.weight": torch.rand(1000, 512), "fc.bias": torch.rand(1000)},
    "not_there": lambda state: {k: v for k, v in state.items() if not k.startswith("fc.")},
    "half_there": lambda state: {k: v for k, v in state.items() if k != "fc.bias"},
}


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_a_classifier_that_does_not_fit_begins_anew(case: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    file = saved(CLASSIFIERS[case](state), tmp_path / "w.safetensors")
    made = []
    for _ in range(2):
        torch.manual_seed(1)
        made.append(build_backbone(SMALL, 3, weights=file))
    model, again = made
    assert same(model, state, but="fc.")
    assert same(again, model.state_dict())
    assert model.fc.weight.min() < 0  # nothing of the checkpoint's
    assert model.fc.bias.min() < 0


def test_a_new_classifier_on_trained_features_begins_small(tmp_path: Path) -> None:
    """timm's MobileNetV2 draws it from +-1/sqrt(7): the first loss on PACS was 4 and not log 7, and features were lost."""
    pytest.importorskip("timm")
    kept = {k: v for k, v in build_backbone("mobilenetv2_100", 7).state_dict().items() if not k.startswith("classifier.")}
    model = build_backbone("mobilenetv2_100", 7, weights=saved(kept, tmp_path / "w.safetensors"))
    assert 0 < model.classifier.weight.abs().max() <= model.classifier.in_features**-0.5


def test_halves_become_floats_and_counters_stay_whole(state: dict[str, Tensor], tmp_path: Path) -> None:
    halves = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    model = build_backbone(SMALL, 3, weights=saved(halves, tmp_path / "w.pth"))
    assert all(v.dtype == (torch.float32 if v.is_floating_point() else torch.int64) for v in model.state_dict().values())
    assert torch.equal(model.fc.weight, halves["fc.weight"].float())
    assert model.bn1.num_batches_tracked == 5


def test_counters_may_be_missing(state: dict[str, Tensor], tmp_path: Path) -> None:
    old = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    assert build_backbone(SMALL, 3, weights=saved(old, tmp_path / "w.pth")).bn1.num_batches_tracked == 0


WRONG = {
    "missing": (
        lambda s: {k: v for k, v in s.items() if not k.startswith("layer3.")},
        r"w.safetensors for resnet10t: the checkpoint has no layer3\S*, layer3\S*, layer3\S* and \d+ more; is it",
    ),
    "left_over": (lambda s: {**s, "extra.weight": torch.zeros(1)}, "has extra.weight too many"),
    "both": (
        lambda s: {k.replace("layer1", "blocks"): v for k, v in s.items()},
        r"has no layer1\S*, .* and has blocks\S*, .* too many",
    ),
    "another_size": (
        lambda s: {**s, "layer1.0.conv1.weight": torch.zeros(1, 2, 3, 3)},
        r"layer1.0.conv1.weight is \(1, 2, 3, 3\) in the checkpoint and \(64, 64, 3, 3\) in the model; is it",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_named(case: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    change, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        build_backbone(SMALL, 3, weights=saved(change(state), tmp_path / "w.safetensors"))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_torchvisions_resnets_fit_timms(name: str, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    models = pytest.importorskip("torchvision.models")
    theirs = getattr(models, name)(weights=None).eval()
    model = build_backbone(name, 1000, weights=saved(theirs.state_dict(), tmp_path / "w.pth")).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        close(model(x), theirs(x))


def test_ours_are_saved_and_read_under_their_own_names(tmp_path: Path) -> None:
    state = build_backbone("tiny", 4).state_dict()
    assert same(build_backbone("tiny", 4, weights=saved(state, tmp_path / "w.safetensors")), state)


# --- VGG-16 without its classifier -----------------------------------------------------------------------------------


def test_plain_vgg_computes_torchvisions_features(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    state = numbered_vgg("vgg16")
    file = saved({**state, "classifier.0.weight": torch.zeros(3, 3)}, tmp_path / "w.pth")
    model = build_backbone("vgg16-gap", 7, weights=file).eval()
    features = models.vgg16(weights=None).features
    features.load_state_dict({k.removeprefix("features."): v for k, v in state.items()})
    x = torch.randn(1, 3, 48, 37)
    with torch.no_grad():
        close(model(x), model.classifier(features(x).mean((2, 3))))


def test_plain_vgg_keeps_its_activations_alive_without_a_checkpoint() -> None:
    model, spreads = build_backbone("vgg16-gap", 7), []
    model.stage5.register_forward_hook(lambda module, inputs, output: spreads.append(output.std()))
    with torch.no_grad():
        model(torch.randn(2, 3, 64, 64))
    assert 0.1 < spreads[0] < 10


def test_plain_vgg_refuses_another_vgg(tmp_path: Path) -> None:
    file = saved(numbered_vgg("vgg19"), tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"has stage3.6\S*, .*too many"):
        build_backbone("vgg16-gap", 7, weights=file)


# --- the files at hand -----------------------------------------------------------------------------------------------


def at_hand(name: str) -> str:
    if not (SHARED / name).is_file():
        pytest.skip(f"there is no {name}")
    return str(SHARED / name)


def test_mobilenet_of_timm() -> None:
    pytest.importorskip("timm")
    file = at_hand("mobilenetv2_100.timm.fp16.safetensors")
    model = build_backbone("mobilenetv2_100", 7, weights=file)
    given = load_file(file)
    assert torch.equal(model.conv_stem.weight, given["conv_stem.weight"].float())
    assert set(model.state_dict()) - set(given) == {"classifier.weight", "classifier.bias"}
    with torch.no_grad():
        assert model.eval()(torch.randn(1, 3, 64, 64)).isfinite().all()


def test_vgg_of_torchvision() -> None:
    file = at_hand("vgg16_features.fp16.safetensors")
    model = build_backbone("vgg16-gap", 7, weights=file)
    assert torch.equal(model.stage5[4].weight, load_file(file)["features.28.weight"].float())
