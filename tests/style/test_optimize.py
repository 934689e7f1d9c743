"""Optimizing pixels: every method lowers its own loss, returns valid images and reports progress."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from training import slim_vgg

from efdm.models import VGG
from efdm.progress import Progress
from efdm.style.measures import gram_distance, style_distance
from efdm.style.optimize import OPTIMIZERS, central_moments_loss, gram_loss, optimize, sorted_loss


@pytest.fixture(scope="module")
def encoder() -> VGG:
    return slim_vgg(width=16)


def picture(count: int = 1, side: int = 32) -> torch.Tensor:
    return F.interpolate(torch.rand(count, 3, 8, 8), (side, side + 8), mode="bilinear") * torch.rand(count, 3, 1, 1)


LOSSES = {"gram": gram_loss, "moments": central_moments_loss, "sorted": sorted_loss}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_zero_for_the_style_and_ignores_positions(name: str) -> None:
    style = torch.rand(1, 6, 12, 12)
    moved = style.flatten(2)[..., torch.randperm(144)].view_as(style)
    loss = LOSSES[name](style)
    assert loss(style).item() == pytest.approx(0, abs=1e-5)
    assert loss(moved).item() == pytest.approx(0, abs=1e-5)
    assert loss(style**2).item() > 0.01


@pytest.mark.parametrize("name", LOSSES)
def test_a_gradient_step_lowers_the_loss(name: str) -> None:
    style, features = torch.rand(1, 6, 12, 12), torch.randn(1, 6, 8, 8).requires_grad_()
    loss = LOSSES[name](style)
    before = loss(features)
    before.backward()
    assert features.grad is not None
    step = 1e-3 * features.grad / features.grad.norm()
    assert loss(features.detach() - step) < before
    assert loss(style.clone().requires_grad_()).backward() is None  # finite at the minimum


def test_moments_are_central_and_of_the_sigmoid() -> None:
    style = torch.logit(torch.tensor([0.1, 0.1, 0.1, 0.9])).view(1, 1, 2, 2)
    features = torch.logit(torch.full((1, 1, 2, 2), 0.3))  # equal means, different moments
    second_to_fifth = 0.12 + 0.048 + 0.0336 + 0.0192
    assert central_moments_loss(style)(features).item() == pytest.approx(second_to_fifth, abs=1e-6)


@pytest.mark.parametrize("method", OPTIMIZERS)
def test_the_style_distance_falls(method: str, encoder: VGG) -> None:
    content, style = picture(), picture(side=40)
    reports: list[Progress] = []
    output = optimize(content, style, method, encoder, iterations=30, progress=reports.append)
    assert output.shape == content.shape
    assert 0 <= output.min() <= output.max() <= 1
    # a line search may exceed the limit
    assert [r.done for r in reports] == [min(i, 30) for i in range(1, len(reports) + 1)]
    assert 30 <= len(reports) < 60
    assert {r.total for r in reports} == {30}
    assert reports[-1].values["loss"] < 0.75 * reports[0].values["loss"]
    measure = gram_distance if "gatys" in method else style_distance
    layers = [encoder.taps(x, ("relu1_1", "relu2_1")) for x in (content, output, style)]
    before, after = (sum(measure(f, s).item() for f, s in zip(fs, layers[2], strict=True)) for fs in layers[:2])
    assert after < before


@pytest.mark.parametrize("method", [m for m, row in OPTIMIZERS.items() if row.content_tap])
def test_more_weight_keeps_more_content(method: str, encoder: VGG) -> None:
    content, style, row = picture(), picture(), OPTIMIZERS[method]
    little, much = (
        optimize(content, style, replace(row, content_weight=row.content_weight * w), encoder, iterations=8)
        for w in (0.0, 1e8)  # Gatys' style weights are too large for so few channels
    )
    errors = [F.mse_loss(*(encoder.taps(x, (row.content_tap,))[0] for x in (o, content))).item() for o in (little, much)]
    assert errors[1] < 0.5 * errors[0]


def test_content_in_its_own_style_is_unchanged(encoder: VGG) -> None:
    content = picture()
    assert torch.allclose(optimize(content, content, "gatys", encoder, iterations=3), content, atol=1e-3)


def test_images_of_a_batch_are_optimized_separately(encoder: VGG) -> None:
    contents, styles = picture(2), picture(2)
    together = optimize(contents, styles, "gatys", encoder, iterations=3)
    alone = optimize(contents[1:], styles[1:], "gatys", encoder, iterations=3)
    assert torch.allclose(together[1:], alone, atol=1e-4)
    shared = optimize(contents, styles[1:], "gatys", encoder, iterations=3)
    assert torch.allclose(shared[1:], alone, atol=1e-4)


def test_inference_mode_and_channels_last(encoder: VGG) -> None:
    with torch.inference_mode():
        content = picture().contiguous(memory_format=torch.channels_last)
        output = optimize(content, picture(), "efdm", encoder, iterations=2)
    assert not torch.equal(output, content)
    assert not output.requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.rand(3, 32, 32), torch.rand(1, 3, 32, 32), "efdm"), "content has shape"),
        ((torch.rand(1, 3, 32, 32), torch.rand(1, 1, 32, 32), "efdm"), "style has shape"),
        ((torch.rand(3, 3, 32, 32), torch.rand(2, 3, 32, 32), "efdm"), "3 contents, got 2"),
        ((torch.rand(1, 3, 32, 8), torch.rand(1, 3, 32, 32), "efdm"), "at least 16"),
        ((torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32), "gaty"), "did you mean 'gatys'"),
    ],
)
def test_bad_arguments(arguments: tuple[torch.Tensor, torch.Tensor, str], message: str, encoder: VGG) -> None:
    with pytest.raises(ValueError, match=message):
        optimize(*arguments, encoder)
    with pytest.raises(ValueError, match="at least 1"):
        optimize(picture(), picture(), "cmd", encoder, iterations=0)
