from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tolerances import close
from torch import Tensor, nn
from training import numbered_vgg

from efdm.models import VGG, StyleNetwork, build, load_vgg
from efdm.nn.losses import STYLE_LOSSES, distribution_loss, likeness_loss, random_directions, sliced_loss
from efdm.ops import MATCHERS, efdm
from efdm.style.objective import (
    DISTILLED,
    LIKENESS_TAPS,
    STYLE_TAPS,
    PaperObjective,
    ReconstructionObjective,
    SmallObjective,
)
from efdm.style.pipeline import transfer


@pytest.fixture(scope="module")
def teacher() -> VGG:
    encoder = VGG("vgg16", "relu4_3", padding="zeros", pooling="floor")
    return load_vgg(encoder, numbered_vgg("vgg16", blocks=4)).requires_grad_(False)


@pytest.fixture(scope="module")
def vgg() -> StyleNetwork:
    network = build("vgg16")
    load_vgg(network.stages[0], numbered_vgg("vgg16", blocks=4))  # type: ignore[arg-type]
    return network


@pytest.fixture
def small() -> StyleNetwork:
    network = build("small")
    for p in network.parameters():
        if p.dim() == 4:
            nn.init.kaiming_normal_(p)
    return network


@pytest.fixture
def pictures() -> tuple[Tensor, Tensor]:
    return torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32).square()


def given_back() -> StyleNetwork:
    """A network whose features are the picture."""
    network = StyleNetwork(
        "given back", [nn.Identity(), nn.Identity()], nn.Identity(), strides=(1, 1), receptive_field=(0, 0, 0)
    )
    network.unused = nn.Parameter(torch.zeros(1))
    return network


# --- the paper's -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MATCHERS)
def test_the_papers_losses_are_what_it_says(vgg: StyleNetwork, pictures: tuple[Tensor, Tensor], method: str) -> None:
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


def test_the_paper_trains_no_other_network(small: StyleNetwork) -> None:
    with pytest.raises(ValueError, match="the paper's objective trains the decoder of a VGG; small is trained by 'small'"):
        PaperObjective(small)


def test_the_papers_losses_are_means_over_the_batch(vgg: StyleNetwork, pictures: tuple[Tensor, Tensor]) -> None:
    content, style = pictures
    objective = PaperObjective(vgg)
    with torch.no_grad():
        whole = objective(content, style)
        halves = [objective(content[i : i + 1], style[i : i + 1]) for i in range(2)]
    for name, value in whole.items():
        close(value, torch.stack([h[name] for h in halves]).mean())


# --- reconstruction --------------------------------------------------------------------------------------------------


def test_a_picture_given_back_costs_nothing_but_what_is_not_known_of_vgg(
    teacher: VGG, pictures: tuple[Tensor, Tensor]
) -> None:
    objective = ReconstructionObjective(given_back(), teacher)
    losses = objective(*pictures)
    assert losses["pixels"] == 0
    assert losses["likeness"] < 1e-9
    assert losses["distilled"] > 0.1
    close(losses["loss"], losses["distilled"])


def test_heads_that_know_vgg_pay_nothing(teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    told = torch.cat(pictures)
    objective = ReconstructionObjective(given_back(), teacher)
    targets = [F.adaptive_avg_pool2d(t, (32, 32)) for t in teacher.taps(told, DISTILLED)]
    assert [h.out_channels for h in objective.heads] == [t.shape[1] for t in targets]
    objective.heads = nn.ModuleList(Told(t) for t in targets)
    assert objective(*pictures)["distilled"] == 0


class Told(nn.Module):
    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, features: Tensor) -> Tensor:
        return self.answer


def test_reconstruction_trains_everything_and_its_heads(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]
) -> None:
    objective = ReconstructionObjective(small, teacher)
    objective(*pictures)["loss"].backward()
    trained = [p for m in objective.trained() for p in m.parameters()]
    assert {id(p) for p in trained} == {id(p) for p in [*small.parameters(), *objective.heads.parameters()]}
    assert all(p.grad is not None for p in trained)
    assert all(p.grad is None for p in teacher.parameters())


# --- the small network's ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["efdm", "adain"])
def test_training_sees_what_a_transfer_makes(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor], method: str
) -> None:
    content, style = pictures
    with torch.no_grad():
        seen = SmallObjective(small, teacher, method=method).transfer(content, style)
        made = transfer(small, content, small.features(style), method=method)
    # moments first may move two nearly equal values past each other
    assert (seen - made).abs().mean() < 1e-4 * made.abs().mean()


def test_the_small_networks_losses(small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    content, style = pictures
    objective = SmallObjective(small, teacher, style_weight=2.0, sliced_weight=3.0, identity_weight=5.0, identities=1)
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


def test_only_what_follows_the_first_stage_is_trained(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]
) -> None:
    objective = SmallObjective(small, teacher)
    objective(*pictures)["loss"].backward()
    trained = {id(p) for m in objective.trained() for p in m.parameters()}
    assert all((p.grad is not None) == (id(p) in trained) for p in small.parameters())
    assert not trained & {id(p) for p in small.stages[0].parameters()}


def test_a_picture_styled_by_itself_stays(teacher: VGG, pictures: tuple[Tensor, Tensor]) -> None:
    content, style = pictures
    objective = SmallObjective(given_back(), teacher, identities=1)
    assert objective(content, style)["identity"] < 1e-5
    close(objective.transfer(content, style)[0], efdm(content, style)[0])
    assert SmallObjective(given_back(), teacher, identities=0)(content, style)["identity"] == 0


def test_processes_that_share_a_batch_have_the_losses_of_one(
    small: StyleNetwork, teacher: VGG, pictures: tuple[Tensor, Tensor]
) -> None:
    content, style = pictures
    directions = [random_directions(4, c) for c in (256, 512)]
    whole = SmallObjective(small, teacher)(content, style, directions)
    shares = [SmallObjective(small, teacher, identities=i, processes=2) for i in (0, 1)]
    halves = [o(content[i : i + 1], style[i : i + 1], directions) for i, o in enumerate(shares)]
    for name, value in whole.items():
        close(value.detach(), torch.stack([h[name] for h in halves]).mean().detach())


@pytest.mark.parametrize(("count", "identities", "processes"), [(1, 1, 1), (2, 2, 1), (1, 2, 2)])
def test_a_batch_of_identities_alone_is_refused(teacher: VGG, count: int, identities: int, processes: int) -> None:
    """Its loss would be the same for every style."""
    objective = SmallObjective(given_back(), teacher, identities=identities, processes=processes)
    whole = count * processes
    with pytest.raises(ValueError, match=f"a batch of {whole} with identities={identities} has no style to learn"):
        objective(torch.rand(count, 3, 16, 16), torch.rand(count, 3, 16, 16))
