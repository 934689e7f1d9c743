"""Features before the classifier."""

import pytest
import torch
from tolerances import close

from efdm import EFDMix, mix_after
from efdm.errors import SettingError
from efdm.models import classifier_of, embedding, embedding_width
from efdm.models.backbones import BACKBONES, build_backbone

TIMM = ("resnet10t", "mobilenetv2_050", "mobilenetv3_small_050", "convnext_atto", "regnetx_002")


@pytest.mark.parametrize("name", [*BACKBONES, *TIMM])
def test_features_are_what_the_classifier_maps_to_logits(name: str) -> None:
    pytest.importorskip("timm")
    model = build_backbone(name, 5).eval()
    images = torch.randn(2, 3, 256, 128)
    with torch.no_grad():
        features, logits = embedding(model, images)
        assert features.shape == (2, embedding_width(model))
        close(logits, classifier_of(model)(features))
        assert torch.equal(logits, model(images))
        if name in TIMM:
            close(features, model.forward_head(model.forward_features(images), pre_logits=True))
    assert not classifier_of(model)._forward_pre_hooks


def test_features_are_mixed_and_have_gradients_and_leave_no_hook() -> None:
    model = mix_after(build_backbone("tiny", 3), ("stage1",), EFDMix(p=1.0, alpha=None))
    images = torch.randn(4, 3, 32, 32)
    torch.manual_seed(1)
    features, logits = embedding(model, images)
    torch.manual_seed(1)
    assert torch.equal(logits, model(images))
    features.sum().backward()
    assert model.stage1[0].weight.grad.abs().sum() > 0
    assert model.classifier.weight.grad is None
    with pytest.raises(RuntimeError):
        embedding(model, torch.zeros(1, 5))
    assert not model.classifier._forward_pre_hooks


@pytest.mark.parametrize("name", ["iformer_t", "caformer_s18", "sequencer2d_s"])  # heads with several layers
def test_features_enter_the_last_layer_of_the_head(name: str) -> None:
    with torch.device("meta"):
        model = pytest.importorskip("timm").create_model(name, num_classes=4)
    assert classifier_of(model).weight.shape == (4, embedding_width(model))


def test_several_classifiers_are_refused() -> None:
    with torch.device("meta"):
        model = pytest.importorskip("timm").create_model("levit_128s", num_classes=4)
    with pytest.raises(SettingError, match="LevitDistilled has 2 classifiers"):
        classifier_of(model)
