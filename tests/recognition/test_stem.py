import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.backbones import build_backbone
from efdm.recognition.stem import _space_to_depth, relu_max_pool, stem_forwards
from efdm.training.compiled import compiled, replaced_forwards

SIZES = [(12, 12), (7, 9), (1, 1), (2, 5)]


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return build_backbone("resnet18", 7).eval()


@pytest.mark.parametrize("size", [(32, 32), (31, 20)])
def test_the_convolution_over_blocks_equals_the_original(size: tuple[int, int]) -> None:
    convolution = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False).double()
    images = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(_space_to_depth(convolution, images), convolution(images))


def test_a_resnet_computes_the_same_with_the_faster_stem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    compiled.cache_clear()
    model, images = resnet(), torch.randn(2, 3, 64, 64)
    forwards = stem_forwards(model, [])
    assert [name for name, module in model.named_modules() if module in forwards] == ["conv1", "act1", "maxpool"]
    with torch.no_grad():
        expected = model(images)
        with replaced_forwards(forwards):
            torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-4)
    compiled.cache_clear()


def test_other_stems_are_unchanged() -> None:
    model = resnet()
    assert stem_forwards(model, [model.act1]) == {}
    model.conv1.stride = (1, 1)
    assert stem_forwards(model, []) == {}
    assert stem_forwards(nn.Sequential(nn.Conv2d(3, 8, 7), nn.BatchNorm2d(8)), []) == {}


def with_gradients(x: Tensor, gradient: Tensor, function: object) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    out = function(x)  # type: ignore[operator]
    out.backward(gradient)
    assert x.grad is not None
    return out.detach(), x.grad


@pytest.mark.gpu
@pytest.mark.parametrize("size", [*SIZES, (112, 112)])
def test_the_pooling_kernel_equals_torch(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 64, *size, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    gradient = torch.randn(3, 64, (size[0] + 1) // 2, (size[1] + 1) // 2, device="cuda").bfloat16()
    found = with_gradients(x, gradient, relu_max_pool)
    expected = with_gradients(x, gradient, lambda x: F.max_pool2d(F.relu(x), 3, stride=2, padding=1))
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=0.02, atol=0.02)  # torch adds gradients in bfloat16
    x[0, 0] = torch.nan
    assert relu_max_pool(x)[0, 0].isnan().all()
