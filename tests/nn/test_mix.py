from __future__ import annotations

import pytest
import torch
from tolerances import close

from efdm import MATCHERS, EFDMix, FeatureMix, MixStyle, adain, channel_stats, domains_of_batch, efdm, efdmix
from efdm.nn import CrossNorm, draw


def features(device: torch.device, batch: int = 6) -> torch.Tensor:
    return torch.randn(batch, 4, 5, 6, device=device)


@pytest.mark.parametrize("method", MATCHERS)
def test_every_row_is_a_layer(method: str, device: torch.device) -> None:
    x = features(device)
    out = FeatureMix(method, p=1.0, alpha=5.0)(x)
    assert out.isfinite().all()
    assert not torch.equal(out, x)


def test_equals_efdmix_of_the_draws(device: torch.device) -> None:
    x = features(device).requires_grad_()
    out = EFDMix(p=1.0, generator=torch.Generator(device).manual_seed(5))(x)
    g = torch.Generator(device).manual_seed(5)
    torch.rand((), device=device, generator=g)
    lam = draw.beta(0.1, 6, device, g)
    partner = torch.randperm(6, device=device, generator=g)
    expected = efdmix(x, x[partner], lam, style_grad="flow")
    close(out, expected)
    grad = torch.randn_like(x)
    close(torch.autograd.grad(out, x, grad)[0], torch.autograd.grad(expected, x, grad)[0])


def test_a_closed_gate_draws_as_much_as_an_open_one(device: torch.device) -> None:
    states = []
    for p in (1e-9, 1.0):
        g = torch.Generator(device).manual_seed(0)
        EFDMix(p=p, generator=g)(features(device))
        states.append(g.get_state())
    assert torch.equal(*states)


def test_beta(device: torch.device) -> None:
    for alpha in (0.1, 1.0, 5.0):
        lam = draw.beta(alpha, 40_000, device, torch.Generator(device).manual_seed(0))
        assert bool(((lam >= 0) & (lam <= 1)).all())
        assert lam.mean().item() == pytest.approx(0.5, abs=0.01)
        assert lam.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)
    lam = draw.beta(0.1, 40_000, device, torch.Generator(device).manual_seed(0)).cpu().sort().values
    expected = torch.distributions.Beta(0.1, 0.1).sample((40_000,)).sort().values
    assert (lam - expected).abs().mean() < 0.01, "the whole distribution must agree, not only its moments"


@pytest.mark.parametrize("alpha", [1e-6, 1e300])
def test_beta_at_the_limits_of_alpha(alpha: float, device: torch.device) -> None:
    EFDMix(alpha=alpha)
    lam = draw.beta(alpha, 10_000, device, torch.Generator(device).manual_seed(0))
    assert bool(((lam >= 0) & (lam <= 1)).all())
    assert lam.mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"method": "efdmx"}, ValueError, "method='efdmx' is not one of"),
        ({"alpha": 0.0}, ValueError, "alpha must be .* got 0.0"),
        ({"alpha": 1e-40}, ValueError, ">= 1e-6"),
        ({"alpha": float("inf")}, ValueError, "alpha must be finite"),
        ({"pairing": "cross-domain"}, ValueError, "did you mean 'crossdomain'"),
        ({"ties": "foo"}, ValueError, "ties='foo'"),
        ({"style_grad": "no"}, ValueError, "style_grad='no'"),
        ({"content_grad": "stop"}, TypeError, "FeatureMix has no option 'content_grad'"),
        ({"style_mask": None}, TypeError, "FeatureMix has no option 'style_mask'"),
    ],
    ids=str,
)
def test_wrong_settings_raise_at_construction(settings: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FeatureMix(**settings)


def test_mix_is_an_alias_of_pairing() -> None:
    assert repr(EFDMix(mix="halves")) == repr(EFDMix(pairing="halves"))
    assert CrossNorm(mix="crossdomain").pairing == "crossdomain"
    with pytest.raises(TypeError, match="pairing='random' and mix='halves'"):
        MixStyle(pairing="random", mix="halves")
    with pytest.raises(ValueError, match="pairing='half'"):
        MixStyle(mix="half")


def test_the_gradient_to_the_content_is_1(device: torch.device) -> None:
    x = features(device).bfloat16().requires_grad_()
    EFDMix(p=1.0, style_grad="stop")(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_labels_are_dropped_after_the_block(device: torch.device) -> None:
    layer = EFDMix(p=1.0, pairing="crossdomain")
    with domains_of_batch(torch.tensor([0, 1])), domains_of_batch(torch.tensor([0, 1, 2])):
        layer(features(device, 3))
    with pytest.raises(ValueError, match="requires domain labels"):
        layer(features(device, 2))


@pytest.mark.slow
def test_compiled_calls_draw_the_gate_anew(device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(EFDMix(p=0.5, alpha=50.0), fullgraph=True, backend="aot_eager")
    x = features(device, 16)
    opened = sum(not torch.equal(compiled(x), x) for _ in range(60))
    assert 12 < opened < 48


@pytest.mark.slow
@pytest.mark.parametrize(("pairing", "ties"), [("crossdomain", "fast"), ("halves", "fast"), ("random", "random")], ids=str)
def test_compiles_in_one_graph_with_changing_batches(pairing: str, ties: str, device: torch.device) -> None:
    torch._dynamo.reset()
    layer = EFDMix(p=1.0, alpha=5.0, pairing=pairing, ties=ties, style_grad="stop")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for batch in (8, 7, 1, 8):
        x = features(device, batch).requires_grad_()
        grad = torch.randn_like(x)
        with domains_of_batch(torch.arange(batch, device=device) % 3):
            out = compiled(x)
        assert torch.equal(out, x) == (batch == 1)
        out.backward(grad)
        assert torch.equal(x.grad, grad)


@pytest.mark.slow
def test_layers_of_different_alpha_compile_in_one_process() -> None:
    torch._dynamo.reset()
    for alpha in (5.0, 0.1, 0.3):  # from the second value on, torch.compile treats alpha as a symbol
        compiled = torch.compile(EFDMix(p=1.0, alpha=alpha), fullgraph=True, backend="eager")
        assert compiled(features(torch.device("cpu"))).isfinite().all()


def test_an_inplace_operation_may_follow(device: torch.device) -> None:
    layer = EFDMix(p=1.0, alpha=5.0, style_grad="stop")
    x = features(device).requires_grad_()
    out = layer(x)
    kept = out.detach().clone()
    torch.relu_(out).sum().backward()
    assert torch.equal(x.grad, (kept > 0).float())


def test_default_dtype_and_device_are_ignored() -> None:
    x = torch.randn(4, 3, 8, 1)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        assert EFDMix(p=1.0)(x).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
    with torch.device("meta"):
        assert EFDMix(p=1.0)(x).device.type == "cpu"


def test_exporting_in_training_mode_raises() -> None:
    model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 1), EFDMix(p=1.0))
    with pytest.raises(Exception, match=r"call model.eval\(\) before exporting"):
        torch.export.export(model.train(), (torch.randn(4, 2, 5),))
    torch.export.export(model.eval(), (torch.randn(4, 2, 5),))


def test_random_ties_come_from_the_generator(device: torch.device) -> None:
    x = torch.zeros(4, 2, 30, device=device)
    x[:, :, :5] = torch.randn(4, 2, 5, device=device)
    outs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        outs.append(EFDMix(p=1.0, ties="random", channel_dim=1, generator=torch.Generator(device).manual_seed(3))(x))
    assert torch.equal(*outs)


def test_alpha_none_keeps_nothing(device: torch.device) -> None:
    x = features(device, 2)
    out = EFDMix(p=1.0, alpha=None, pairing="crossdomain")(x, domains=torch.tensor([0, 1]))
    assert torch.equal(out, efdm(x, x.flip(0)))


def test_crossnorm_takes_the_statistics_of_the_partner(device: torch.device) -> None:
    x = (
        features(device, 2) * torch.rand(2, 4, 1, 1, device=device) + torch.randn(2, 4, 1, 1, device=device)
    ).requires_grad_()
    out = CrossNorm(p=1.0, pairing="crossdomain", eps=0.0)(x, domains=torch.tensor([0, 1]))
    for ours, partners in zip(channel_stats(out)[:2], channel_stats(x.flip(0))[:2], strict=True):
        close(ours, partners)
    # the published code detaches nothing, so the gradient flows through all statistics
    grad = torch.randn_like(x)
    expected = adain(x, x.flip(0), eps=0.0, style_grad="flow", content_stats="flow")
    close(torch.autograd.grad(out, x, grad)[0], torch.autograd.grad(expected, x, grad)[0])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_draws_for_every_batch() -> None:
    x = torch.randn(4, 3, 6, 6).expand(20, -1, -1, -1, -1)
    out = torch.vmap(EFDMix(p=0.5, alpha=None), randomness="different")(x)
    ordered, known = out.flatten(3).sort(-1).values, x[0].flatten(2).sort(-1).values
    assert all(any(torch.equal(sample, style) for style in known) for batch in ordered for sample in batch)
    assert len({tuple(batch[:, 0, 0].tolist()) for batch in ordered}) > 2  # closed gates, and more than one pairing
