import pytest
import torch
import torch.nn.functional as F
from tolerances import close
from torch import Tensor, nn
from training import randomize, teacher_vgg, vgg_network

from efdm.models import VGG, NetworkSpec, StyleNetwork, build
from efdm.nn.losses import STYLE_LOSSES, distribution_loss, likeness_loss, random_directions, sliced_loss
from efdm.ops import MATCHERS, efdm
from efdm.style.objective import (
    DISTILLED,
    LIKENESS_TAPS,
    STYLE_TAPS,
    PaperObjective,
    PerceptualObjective,
    ReconstructionObjective,
)
from efdm.style.pipeline import transfer


@pytest.fixture(scope="module")
def teacher() -> VGG:
    return teacher_vgg().requires_grad_(False)


@pytest.fixture(scope="module")
def vgg() -> StyleNetwork:
    return vgg_network()


@pytest.fixture
def small() -> StyleNetwork:
    return randomize(build("small"))


@pytest.fixture
def pictures() -> tuple[Tensor, Tensor]:
    return torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32).square()


def identity_network() -> StyleNetwork:
    """Return a network whose features are the image."""
    layers = [nn.Identity(), nn.Identity()], nn.Identity()
    network = StyleNetwork(NetworkSpec("identity", lambda: layers, (1, 1), (0, 0, 0)))
    network.unused = nn.Parameter(torch.zeros(1))
    return network


@pytest.mark.parametrize("method", ["efdm", "adain"])
def test_losses_of_the_paper(vgg: StyleNetwork, pictures: tuple[Tensor, Tensor], method: str) -> None:
    content, style = pictures
    encoder = vgg.stages[0]
    with torch.no_grad():
        found = PaperObjective(vgg, method=method, style_weight=3.0)(content, style)
        matched = MATCHERS[method](encoder(content), encoder(style))
        output = vgg.decoder(matched)
        close(found["content"], F.mse_loss(encoder(output), matched))
        taps = zip(encoder.taps(output, STYLE_TAPS), encoder.taps(style, STYLE_TAPS), strict=True)  # type: ignore[operator]
        close(found["style"], torch.stack([STYLE_LOSSES[method](f, w) for f, w in taps]).sum())
    close(found["loss"], found["content"] + 3 * found["style"])


def test_the_style_has_a_gradient_and_only_the_decoder_receives_it(
    vgg: StyleNetwork, pictures: tuple[Tensor, Tensor]
) -> None:
    objective = PaperObjective(vgg)
    assert objective.trained() == [vgg.decoder]
    objective.requires_grad_(False)
    vgg.decoder.requires_grad_(True)
    objective(*pictures)["style"].backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in vgg.decoder.parameters())
    assert all(p.grad is None for p in vgg.stages.parameters())
    vgg.zero_grad()


def test_the_papers_losses_are_means_over_the_batch(vgg: StyleNetwork, pictures: tuple[Tensor, Tensor]) -> None:
    content, style = pictures
    objective = PaperObjective(vgg)
    with torch.no_grad():
        whole = objective(content, style)
        halves = [objective(content[i : i + 1], style[i : i + 1]) for i in range(2)]
    for name, value in whole.items():
        close(value, torch.stack([h[name] for h in halves]).mean())


def test_a_perfect_reconstruction_has_only_the_distillation_loss(teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    objective = ReconstructionObjective(identity_network(), teacher)
    losses = objective(*pictures)
    assert losses["pixels"] == 0
    assert losses["likeness"] < 1e-9
    assert losses["distilled"] > 0.1
    close(losses["loss"], losses["distilled"])


def test_heads_that_predict_vgg_features_have_no_loss(teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    objective = ReconstructionObjective(identity_network(), teacher)
    targets = [F.adaptive_avg_pool2d(t, (32, 32)) for t in teacher.taps(torch.cat(pictures), DISTILLED)]
    assert [h.out_channels for h in objective.heads] == [t.shape[1] for t in targets]
    del objective.heads
    objective.heads = [lambda features, target=target: target for target in targets]
    assert objective(*pictures)["distilled"] == 0


def test_reconstruction_trains_everything_and_its_heads(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]
) -> None:
    objective = ReconstructionObjective(small, teacher)
    objective(*pictures)["loss"].backward()
    trained = [p for m in objective.trained() for p in m.parameters()]
    assert {id(p) for p in trained} == {id(p) for p in [*small.parameters(), *objective.heads.parameters()]}
    assert all(p.grad is not None for p in trained)
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.parametrize("method", ["efdm", "adain"])
def test_training_transfers_as_inference_does(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor], method: str
) -> None:
    content, style = pictures
    with torch.no_grad():
        seen = PerceptualObjective(small, teacher, method=method).transfer(content, style)
        made = transfer(small, content, small.features(style), method=method, options={})  # without a tolerance
    # matching moments first may swap two nearly equal values
    assert (seen - made).abs().mean() < 1e-4 * made.abs().mean()


def test_losses_of_the_perceptual_objective(small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    content, style = pictures
    objective = PerceptualObjective(small, teacher, style_weight=2.0, sliced_weight=3.0, identity_weight=5.0, identities=1)
    directions = [random_directions(4, c) for c in (256, 512)]
    styles = torch.stack([style[0], content[1]])  # the last is its own style
    taps = ("relu1_1", "relu2_1", "relu3_1", "relu3_3", "relu4_1", "relu4_3")
    with torch.no_grad():
        found = objective(content, style, directions)
        output = objective.transfer(content, styles)
        f, c, s = (dict(zip(taps, teacher.taps(x, taps), strict=True)) for x in (output, content, styles))
        seen = {"norm": "huber", "unit": "spread"}
        close(found["content"], sum(w * likeness_loss(f[t], c[t]) for t, w in LIKENESS_TAPS.items()))
        close(found["style"], sum(distribution_loss(f[t], s[t], **seen) for t in STYLE_TAPS) / 4)
        deep = zip(("relu3_1", "relu4_1"), directions, strict=True)
        close(found["sliced"], sum(sliced_loss(f[t], s[t], d, **seen) for t, d in deep))
        close(found["identity"], (output[1] - content[1]).abs().mean())
    parts = found["content"] + 2 * found["style"] + 3 * found["sliced"] + 5 * found["identity"]
    close(found["loss"], parts)


def test_the_first_stage_is_frozen(small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    objective = PerceptualObjective(small, teacher)
    objective(*pictures)["loss"].backward()
    trained = {id(p) for m in objective.trained() for p in m.parameters()}
    assert all((p.grad is not None) == (id(p) in trained) for p in small.parameters())
    assert not trained & {id(p) for p in small.stages[0].parameters()}


def test_the_identity_loss_of_the_identity_is_zero(teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    content, style = pictures
    objective = PerceptualObjective(identity_network(), teacher, identities=1)
    assert objective(content, style)["identity"] < 1e-5
    close(objective.transfer(content, style)[0], efdm(content, style)[0])
    assert PerceptualObjective(identity_network(), teacher, identities=0)(content, style)["identity"] == 0


def test_losses_of_several_processes_average_to_those_of_one(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]
) -> None:
    content, style = pictures
    directions = [random_directions(4, c) for c in (256, 512)]
    whole = PerceptualObjective(small, teacher)(content, style, directions)
    shares = [PerceptualObjective(small, teacher, identities=i, processes=2) for i in (0, 1)]
    halves = [o(content[i : i + 1], style[i : i + 1], directions) for i, o in enumerate(shares)]
    for name, value in whole.items():
        close(value.detach(), torch.stack([h[name] for h in halves]).mean().detach())
