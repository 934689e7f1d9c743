"""Properties that all feature layers share."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from efdm import active, mix_after
from efdm.nn import DSU, CrossNorm, DistributionNoise, DropBlock, EFDMix, FeatureLayer, MixStyle, draw, feature_layers

LAYERS = {
    "efdmix": lambda **s: EFDMix(1.0, 5.0, **s),
    "mixstyle": lambda **s: MixStyle(1.0, 5.0, **s),
    "crossnorm": lambda **s: CrossNorm(1.0, **s),
    "dsu": lambda **s: DSU(1.0, **s),
    "noise": lambda **s: DistributionNoise(1.0, **s),
    "noise by channel": lambda **s: DistributionNoise(1.0, style_grad="stop", draws="channels", **s),
    "noise along rotated axes": lambda **s: DistributionNoise(1.0, axes="rotated", **s),
    "dropblock": lambda **s: DropBlock(0.3, 2, **s),
}


@pytest.fixture(params=LAYERS)
def make(request: pytest.FixtureRequest):
    return LAYERS[request.param]


def features(device: torch.device, batch: int = 6) -> Tensor:
    return torch.randn(batch, 4, 5, 6, device=device)


def test_active_in_training_mode_only(make, device: torch.device) -> None:
    layer, x = make(), features(device)
    assert not torch.equal(layer(x), x)
    assert layer.eval()(x) is x
    layer.train().active = False
    assert layer(x) is x


def test_p_0_does_nothing(make, device: torch.device) -> None:
    layer, x = make(), features(device)
    layer.p = 0.0
    assert layer(x) is x


@pytest.mark.parametrize("gate", ["read", "not read"])
@pytest.mark.parametrize("layer", [CrossNorm, DistributionNoise, DSU, EFDMix], ids=lambda c: c.__name__)
def test_a_closed_gate_leaves_features_unchanged(
    layer, gate: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gate == "not read":  # as on a GPU
        monkeypatch.setattr(draw, "closed", lambda gate: False)
    x = features(device, 4)
    mixing, opened = layer(p=0.3), 0
    for _ in range(200):
        opened += not torch.equal(mixing(x), x)
    assert 30 < opened < 90  # 60 expected, standard deviation 6.5


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layer", [CrossNorm, DistributionNoise, DSU, EFDMix], ids=lambda c: c.__name__)
def test_a_closed_gate_leaves_infinities_unchanged(layer, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "closed", lambda gate: False)  # as on a GPU
    x = torch.randn(4, 3, 5, 6)
    x[0, 1, 2, 3], x[2, 0, 0, 0] = float("inf"), float("-inf")
    mixing = layer(p=1e-9)
    assert torch.equal(torch.compile(mixing, backend="aot_eager")(x) if compiled else mixing(x), x)


def test_draws_come_from_the_generator(make, device: torch.device) -> None:
    x, outs = features(device), []
    torch.manual_seed(0)
    first = make()(x)
    torch.manual_seed(0)
    assert torch.equal(make()(x), first)
    for seed in (0, 1):
        torch.manual_seed(seed)
        outs.append(make(generator=torch.Generator(device).manual_seed(7))(x))
    assert torch.equal(*outs)
    assert not torch.equal(outs[0], make(generator=torch.Generator(device).manual_seed(8))(x))


@pytest.mark.parametrize("batch", [0, 1, 2, 5])
def test_small_and_odd_batches(make, batch: int, device: torch.device) -> None:
    x = features(device, batch)
    layer = make()
    out = layer(x)
    assert out.shape == x.shape
    assert out.isfinite().all()
    if batch == 1:
        assert torch.equal(out, x) != isinstance(layer, DropBlock), "nothing to mix with, and no spread"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dtypes_and_gradients(make, dtype: torch.dtype, device: torch.device) -> None:
    x = features(device).to(dtype).requires_grad_()
    out = make()(x)
    assert out.dtype == dtype
    out.square().sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.any()


def test_constant_channels_have_finite_gradients(make, device: torch.device) -> None:
    x = torch.zeros(4, 2, 3, 3, device=device, requires_grad=True)
    out = make()(x)
    (out * torch.randn_like(out)).sum().backward()
    assert x.grad.isfinite().all()


def test_keeps_channels_last(make, device: torch.device) -> None:
    x = features(device).contiguous(memory_format=torch.channels_last)
    assert make()(x).is_contiguous(memory_format=torch.channels_last)


def test_channels_last_in_the_shape(make, device: torch.device) -> None:
    x = features(device)
    first = make(generator=torch.Generator(device).manual_seed(0))(x)
    last = make(generator=torch.Generator(device).manual_seed(0), channel_dim=-1)(x.movedim(1, -1))
    torch.testing.assert_close(last.movedim(-1, 1), first)


def test_tokens_and_prefix(make, device: torch.device) -> None:
    x = torch.randn(4, 1 + 9, 8, device=device)
    out = make(channel_dim=-1, prefix=1)(x)
    assert torch.equal(out[:, 0], x[:, 0])
    assert not torch.equal(out[:, 1:], x[:, 1:])


@pytest.mark.parametrize("copies", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_is_inserted_and_copied_with_a_model(make, copies, device: torch.device) -> None:
    model = mix_after(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to(device), ["0", "1"], make())
    x = torch.randn(4, 3, 8, 8, device=device)
    twin = copies(model)
    assert len(feature_layers(twin)) == 1
    assert not torch.equal(twin(x), twin(x))
    with active(twin, False):
        assert torch.equal(twin(x), twin(x))
        assert not torch.equal(model(x), model(x)), "copies are independent"


def test_checkpointed_forwards(make, device: torch.device) -> None:
    x = features(device).requires_grad_()

    def run(layer: FeatureLayer, checkpointed: bool) -> Tensor:
        torch.manual_seed(1)

        def squares(x: Tensor) -> Tensor:
            return layer(x).square().sum()

        loss = checkpoint(squares, x, use_reentrant=False) if checkpointed else squares(x)
        return torch.autograd.grad(loss, x)[0]

    torch.testing.assert_close(run(make(), checkpointed=True), run(make(), checkpointed=False))
    with pytest.raises(RuntimeError, match="generator=None"):
        run(make(generator=torch.Generator(device)), checkpointed=True)


def test_has_no_state(make) -> None:
    assert make().state_dict() == {}


@pytest.mark.parametrize(
    ("layer", "shown"),
    [
        (
            MixStyle(0.25, 0.3, "crossdomain", eps=1e-5),
            "MixStyle(method='adain', p=0.25, alpha=0.3, pairing='crossdomain', eps=1e-05)",
        ),
        (DropBlock(channel_dim=-1, prefix=1), "DropBlock(p=0.1, block=7, channel_dim=-1, prefix=1)"),
        (
            CrossNorm(pairing="crossdomain", style_grad="stop"),
            "CrossNorm(p=0.5, pairing='crossdomain', eps=1e-05, style_grad='stop', content_stats='flow')",
        ),
        (DSU(generator=torch.Generator()), "DSU(p=0.5, eps=1e-06, generator='<cpu>')"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_repr(layer: FeatureLayer, shown: str) -> None:
    assert repr(layer) == shown
    layer.active = False
    assert "active=False" in repr(layer)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: DSU(1.5), ValueError, "p must be .* got 1.5"),
        (lambda: CrossNorm(-1), ValueError, "p must be .* got -1"),
        (lambda: DropBlock("0.5"), TypeError, "p must be a number, got '0.5'"),
        (lambda: EFDMix(alpha="0.1"), TypeError, "alpha must be a number, got '0.1'"),
        (lambda: MixStyle(eps="1e-6"), TypeError, "eps must be a number, got '1e-6'"),
        (lambda: DSU(eps=-1.0), ValueError, "eps must be .* got -1.0"),
        (lambda: CrossNorm(eps=float("nan")), ValueError, "eps must be .* got nan"),
        (lambda: DropBlock(block=0), ValueError, "block must be .* got 0"),
        (lambda: DistributionNoise(strength=-1.0), ValueError, "strength must be .* got -1.0"),
        (lambda: DistributionNoise(style_grad="no"), ValueError, "style_grad='no'"),
        (lambda: DistributionNoise(draws="each"), ValueError, "draws='each'"),
        (lambda: DistributionNoise(axes="turned"), ValueError, "axes='turned'"),
        (lambda: DSU(channel_dim="last"), TypeError, "channel_dim .* 'last'"),
        (lambda: EFDMix(channel_dim=0), ValueError, "channel_dim must not be 0"),
        (lambda: DropBlock(prefix=-1), ValueError, "prefix must be .* got -1"),
        (lambda: EFDMix(channel_dim=1, prefix=2), ValueError, "prefix=2 .*channel_dim=-1"),
        (lambda: EFDMix(eps=1e-6), TypeError, "EFDMix has no option 'eps'"),
        (lambda: EFDMix(alhpa=0.1), TypeError, "'alhpa'.* p, alpha, pairing, .*prefix.*ties.*did you mean 'alpha'"),
        (lambda: CrossNorm(epss=0.1), TypeError, "CrossNorm has no option 'epss'.*did you mean 'eps'"),
        (lambda: DistributionNoise(strenght=1), TypeError, "DistributionNoise has no option 'strenght'.* 'strength'"),
        (lambda: DropBlock(blok=3), TypeError, "DropBlock has no option 'blok'; its options are p, block, channel_dim"),
        (lambda: DSU(alpha=0.1), TypeError, "DSU has no option 'alpha'; its options are p, .*prefix, generator"),
    ],
)
def test_wrong_settings(build, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("features", "settings", "error", "message"),
    [
        ([1.0], {}, TypeError, "got list"),
        (torch.tensor(1.0), {}, ValueError, r"shape \(\)"),
        (torch.rand(4, 3), {}, ValueError, r"shape \(4, 3\)"),
        (torch.zeros(4, 3, 0), {}, ValueError, r"shape \(4, 3, 0\)"),
        (torch.zeros(4, 3, 5, dtype=torch.int64), {}, TypeError, "int64"),
        (torch.rand(4, 3, 5), {"channel_dim": 3}, ValueError, "channel_dim=3"),
        (torch.rand(4, 3, 5), {"prefix": 2}, ValueError, "prefix=2 .*channel_dim=-1"),
        (torch.rand(4, 2, 5), {"prefix": 2, "channel_dim": -1}, ValueError, r"prefix=2 .*shape \(4, 2, 5\)"),
        (torch.rand(4, 3, 5, 5), {"prefix": 2, "channel_dim": -1}, ValueError, r"prefix=2 .*shape \(4, 3, 5, 5\)"),
    ],
    ids=lambda v: str(tuple(v.shape)) if isinstance(v, Tensor) else None,
)
def test_wrong_features_raise_even_if_the_gate_is_closed(features, settings, error, message) -> None:
    for layer in (EFDMix, DistributionNoise, DSU, DropBlock):
        with pytest.raises(error, match=message):
            layer(p=1e-9, **settings)(features)


def test_a_subclass_must_implement_transform() -> None:
    with pytest.raises(NotImplementedError, match="FeatureLayer must implement transform"):
        FeatureLayer(1.0)(torch.zeros(2, 3, 4, 4))


@pytest.mark.slow
def test_compiles_in_one_graph(make, device: torch.device) -> None:
    torch._dynamo.reset()
    compiled, x = torch.compile(make(), fullgraph=True, backend="aot_eager"), features(device).requires_grad_()
    out = compiled(x)
    assert not torch.equal(out, x)
    out.sum().backward()
    assert not torch.equal(compiled(x), out)
