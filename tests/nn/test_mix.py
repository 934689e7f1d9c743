from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tolerances import close

from efdm import MATCHERS, EFDMix, FeatureMix, MixStyle, adain, channel_stats, domains_of_batch, efdm, efdmix
from efdm.nn import CrossNorm, draw


def features(device: torch.device, batch: int = 6) -> torch.Tensor:
    return torch.randn(batch, 4, 5, 6, device=device)


def test_no_op_in_eval_and_without_chance(device: torch.device) -> None:
    x = features(device)
    assert EFDMix().eval()(x) is x
    assert EFDMix(p=0.0)(x) is x
    layer = EFDMix(p=1.0)
    layer.active = False
    assert layer(x) is x


def test_mixes_in_training(device: torch.device) -> None:
    x = features(device)
    out = EFDMix(p=1.0, alpha=10.0)(x)
    assert out.shape == x.shape
    assert not torch.equal(out, x)


@pytest.mark.parametrize("method", MATCHERS)
def test_every_row_is_a_layer(method: str, device: torch.device) -> None:
    x = features(device)
    out = FeatureMix(method, p=1.0, alpha=5.0)(x)
    assert out.isfinite().all()
    assert not torch.equal(out, x)


def test_is_efdmix_of_its_draws(device: torch.device) -> None:
    x = features(device)
    out = EFDMix(p=1.0, generator=torch.Generator(device).manual_seed(5))(x)
    g = torch.Generator(device).manual_seed(5)
    torch.rand((), device=device, generator=g)
    lam = draw.beta(0.1, 6, device, g)
    partner = torch.randperm(6, device=device, generator=g)
    close(out, efdmix(x, x[partner], lam))


@pytest.mark.parametrize("pairing", ["random", "crossdomain", "halves"])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_small_and_odd_batches(batch: int, pairing: str, device: torch.device) -> None:
    x = features(device, batch)
    with domains_of_batch(torch.arange(batch) % 3):
        out = EFDMix(p=1.0, pairing=pairing)(x)
    assert out.isfinite().all()
    if batch == 1:
        assert torch.equal(out, x)


def test_the_gate_opens_as_often_as_it_says(device: torch.device) -> None:
    x = features(device, 2)
    layer = EFDMix(p=0.3, alpha=50.0, pairing="crossdomain")
    with domains_of_batch(torch.tensor([0, 1])):
        opened = sum(not torch.equal(layer(x), x) for _ in range(400))
    assert 85 < opened < 160  # 120 expected, standard deviation 9


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
    assert (lam - expected).abs().mean() < 0.01, "the whole distribution, not only its moments"


@pytest.mark.parametrize("alpha", [1e-6, 1e300])
def test_beta_at_the_ends_of_what_is_allowed(alpha: float, device: torch.device) -> None:
    EFDMix(alpha=alpha)
    lam = draw.beta(alpha, 10_000, device, torch.Generator(device).manual_seed(0))
    assert bool(((lam >= 0) & (lam <= 1)).all())
    assert lam.mean().item() == pytest.approx(0.5, abs=0.02)


def test_two_seeded_runs_agree(device: torch.device) -> None:
    x = features(device)
    outs = []
    for _ in range(2):
        torch.manual_seed(7)
        layer = EFDMix()
        outs.append(torch.stack([layer(x) for _ in range(6)]))
    assert torch.equal(*outs)
    outs = []
    for _ in range(2):
        layer = EFDMix(generator=torch.Generator(device).manual_seed(7))
        outs.append(torch.stack([layer(x) for _ in range(6)]))
    assert torch.equal(*outs)


def test_truthful_repr() -> None:
    assert repr(EFDMix()) == "EFDMix(method='efdm', p=0.5, alpha=0.1, pairing='random')"
    layer = MixStyle(0.25, 0.3, "crossdomain", eps=1e-5, channel_dim=-1, prefix=1)
    assert repr(layer) == (
        "MixStyle(method='adain', p=0.25, alpha=0.3, pairing='crossdomain', eps=1e-05, channel_dim=-1, prefix=1)"
    )
    layer.active = False
    assert "active=False" in repr(layer)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": 1.5}, "p must be .* got 1.5"),
        ({"alpha": 0.0}, "alpha must be .* got 0.0"),
        ({"alpha": 1e-40}, ">= 1e-6"),
        ({"alpha": float("inf")}, "alpha must be finite"),
        ({"pairing": "cross-domain"}, "did you mean 'crossdomain'"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EFDMix(**settings)
    with pytest.raises(ValueError, match="method='efdmx' is not one of"):
        FeatureMix("efdmx")


def test_mix_is_an_alias_of_pairing() -> None:
    assert repr(EFDMix(mix="halves")) == repr(EFDMix(pairing="halves"))
    assert CrossNorm(mix="crossdomain").pairing == "crossdomain"
    with pytest.raises(TypeError, match="pairing='random' and mix='halves'"):
        MixStyle(pairing="random", mix="halves")
    with pytest.raises(ValueError, match="pairing='half'"):
        MixStyle(mix="half")


def test_no_parameters_no_state() -> None:
    layer = EFDMix()
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}


@pytest.mark.parametrize("copies", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies(copies, device: torch.device) -> None:
    layer = copies(EFDMix(p=1.0, alpha=0.7, ties="stable"))
    assert repr(layer) == repr(EFDMix(p=1.0, alpha=0.7, ties="stable"))
    assert layer(features(device)).shape == (6, 4, 5, 6)


def test_tokens_and_prefix(device: torch.device) -> None:
    x = torch.randn(4, 1 + 9, 8, device=device)
    out = EFDMix(p=1.0, alpha=5.0, channel_dim=-1, prefix=1)(x)
    assert torch.equal(out[:, 0], x[:, 0])
    assert not torch.equal(out[:, 1:], x[:, 1:])
    assert out.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    x = features(device).to(dtype).requires_grad_()
    out = EFDMix(p=1.0)(x)
    assert out.dtype == dtype
    out.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_channels_last(device: torch.device) -> None:
    x = features(device).contiguous(memory_format=torch.channels_last)
    assert EFDMix(p=1.0)(x).is_contiguous(memory_format=torch.channels_last)


def test_flow_reaches_the_partners(device: torch.device) -> None:
    x = features(device).requires_grad_()
    with domains_of_batch(torch.arange(6)):
        EFDMix(p=1.0, alpha=5.0, pairing="crossdomain", style_grad="flow")(x).sum().backward()
    assert not torch.equal(x.grad, torch.ones_like(x))
    assert x.grad.sum().item() > x.numel()


def test_labels_of_a_block_end_with_it(device: torch.device) -> None:
    layer = EFDMix(p=1.0, pairing="crossdomain")
    with domains_of_batch(torch.tensor([0, 1])), domains_of_batch(torch.tensor([0, 1, 2])):
        layer(features(device, 3))
    with pytest.raises(ValueError, match="requires domain labels"):
        layer(features(device, 2))


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["random", "crossdomain", "halves"])
def test_compiles_in_one_graph(pairing: str, device: torch.device) -> None:
    torch._dynamo.reset()
    layer = EFDMix(p=1.0, alpha=5.0, pairing=pairing)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = features(device).requires_grad_()
    g = torch.randn_like(x)
    with domains_of_batch(torch.arange(6, device=device) % 2):
        out = compiled(x)
    assert not torch.equal(out, x)
    out.backward(g)
    assert torch.equal(x.grad, g)
    outs = {compiled(features(device)).sum().item() for _ in range(2)} if pairing == "random" else {0, 1}
    assert len(outs) == 2


@pytest.mark.slow
def test_the_compiled_gate_is_drawn_at_every_call(device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(EFDMix(p=0.5, alpha=50.0), fullgraph=True, backend="aot_eager")
    x = features(device, 16)
    opened = sum(not torch.equal(compiled(x), x) for _ in range(60))
    assert 12 < opened < 48


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["random", "crossdomain", "halves"])
def test_compiled_with_changing_batches(pairing: str, device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(EFDMix(p=1.0, alpha=5.0, pairing=pairing), fullgraph=True, backend="aot_eager")
    for batch in (6, 6, 5, 4, 1, 6):
        with domains_of_batch(torch.arange(batch, device=device) % 3):
            compiled(features(device, batch).requires_grad_()).sum().backward()


def test_labels_can_be_given_to_the_layer(device: torch.device) -> None:
    layer, x = EFDMix(p=1.0, alpha=5.0, pairing="crossdomain"), features(device)
    assert not torch.equal(layer(x, domains=torch.arange(6)), x)


def test_can_be_followed_by_an_operation_in_place(device: torch.device) -> None:
    layer = EFDMix(p=1.0, alpha=5.0)
    x = features(device).requires_grad_()
    out = layer(x)
    kept = out.detach().clone()
    torch.relu_(out).sum().backward()
    assert torch.equal(x.grad, (kept > 0).float())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"ties": "foo"}, ValueError),
        ({"style_grad": "no"}, ValueError),
        ({"eps": 1e-3}, TypeError),
        ({"channel_dim": "last"}, TypeError),
        ({"content_grad": "stop"}, TypeError),
        ({"style_mask": None}, TypeError),
    ],
)
def test_wrong_options_are_told_at_once(settings: dict, error: type) -> None:
    with pytest.raises(error):
        EFDMix(p=0.01, **settings)


def test_threads_keep_their_labels() -> None:
    from concurrent.futures import ThreadPoolExecutor

    layer = EFDMix(p=1.0, alpha=5.0, pairing="crossdomain")

    def work(batch: int) -> None:
        for _ in range(200):
            with domains_of_batch(torch.arange(batch)):
                layer(torch.randn(batch, 2, 5))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (3, 4)))


def test_default_types_and_devices_do_not_matter() -> None:
    x = torch.randn(4, 3, 8)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        assert EFDMix(p=1.0)(x).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
    with torch.device("meta"):
        assert EFDMix(p=1.0)(x).device.type == "cpu"


def test_exporting_in_training_is_refused() -> None:
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
        outs.append(EFDMix(p=1.0, ties="random", generator=torch.Generator(device).manual_seed(3))(x))
    assert torch.equal(*outs)


@pytest.mark.slow
def test_random_ties_compiled_with_changing_batches(device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(EFDMix(p=1.0, ties="random"), backend="aot_eager", fullgraph=True)
    for batch in (4, 5, 6):
        compiled(features(device, batch))


def test_without_alpha_nothing_of_ones_own_is_kept(device: torch.device) -> None:
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
    # the published code detaches nothing: the gradient is that of AdaIN with everything flowing
    grad = torch.randn_like(x)
    expected = adain(x, x.flip(0), eps=0.0, style_grad="flow", content_stats="flow")
    close(torch.autograd.grad(out, x, grad)[0], torch.autograd.grad(expected, x, grad)[0])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_batches_of_batches_draw_for_themselves() -> None:
    x = torch.randn(4, 3, 6, 6).expand(20, -1, -1, -1, -1)
    out = torch.vmap(EFDMix(p=0.5, alpha=None), randomness="different")(x)
    ordered, known = out.flatten(3).sort(-1).values, x[0].flatten(2).sort(-1).values
    assert all(any(torch.equal(sample, style) for style in known) for batch in ordered for sample in batch)
    assert len({tuple(batch[:, 0, 0].tolist()) for batch in ordered}) > 2  # closed gates, and more than one pairing
