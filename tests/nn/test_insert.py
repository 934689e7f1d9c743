from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from small_net import Net, images, mixing
from torch import nn

from efdm import EFDMix, active, domains_of_batch, efdm, mix_after, set_active, unmix
from efdm.nn import DSU, feature_layers, find_stage, stages_of


def test_mixes_in_training_only(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0)), images(device)
    assert mixing(model, x)
    assert not mixing(model.eval(), x)
    assert mixing(model.train(), x)
    model.stem.eval(), model.body.eval()
    assert not mixing(model, x), "the mode of the stage decides"


def test_checkpoint_keys_do_not_change(device: torch.device) -> None:
    model = Net().to(device)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    mix_after(model, ["stem"], EFDMix())
    assert list(model.state_dict()) == list(before)
    model.load_state_dict(before, strict=True)
    assert [n for n, _ in model.named_modules()] == [n for n, _ in Net().named_modules()]


def test_unmix_removes_every_hook(device: torch.device) -> None:
    model = Net().to(device)
    x = images(device)
    mix_after(model, ["stem", "body"], EFDMix(p=1.0, alpha=5.0))
    assert unmix(model) is model
    assert feature_layers(model) == []
    assert not mixing(model, x)
    with pytest.raises(TypeError, match="domains"):
        model(x, domains=torch.zeros(6))
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_each_stage_draws_separately(device: torch.device) -> None:
    seen = []

    class Recording(EFDMix):
        def forward(self, features: torch.Tensor, domains=None, layout=None) -> torch.Tensor:
            out = super().forward(features, domains, layout)
            seen.append(torch.equal(out, features))
            return out

    model = mix_after(Net().to(device), ["stem", "body"], Recording(p=0.5, alpha=5.0))
    for _ in range(30):
        model(images(device))
    assert len(seen) == 60
    assert any(a != b for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_set_active_and_active(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0)), images(device)
    assert not mixing(set_active(model, False), x)
    with active(model):
        assert mixing(model, x)
    assert not mixing(model, x)
    assert mixing(set_active(model), x)
    with active(model, False), pytest.raises(RuntimeError), active(model):
        raise RuntimeError
    assert mixing(model, x)


def test_domains_by_argument_and_by_block(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0, pairing="crossdomain")), images(device)
    domains = torch.tensor([0, 0, 1, 1, 2, 2])
    assert mixing(model, x, domains=domains)
    with domains_of_batch(domains):
        assert mixing(model, x), "the block's labels must outlive a call"
        model(x, domains=torch.tensor([0, 1, 2, 3, 4, 5]))
        assert mixing(model, x)
    with pytest.raises(ValueError, match="requires domain labels"):
        model(x)
    with pytest.raises(ValueError, match="requires domain labels"):
        model(x)  # the failed call must not leave labels behind


@pytest.mark.parametrize("names", [["a", "b"] * 3, np.array(["a", "b"] * 3), [None] * 6], ids=["list", "array", "none"])
def test_domain_names_are_refused(device: torch.device, names) -> None:
    model = mix_after(Net().to(device), ["stem"], EFDMix(pairing="crossdomain"))
    with pytest.raises(ValueError, match=r"integer tensor.*names\.index"):
        model(images(device), domains=names)
    model(images(device), domains=[0, 1] * 3)


@pytest.mark.filterwarnings("error")  # of hooks that also fail
def test_labels_are_dropped_after_a_failed_call(device: torch.device) -> None:
    model = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, pairing="crossdomain"))
    with pytest.raises(RuntimeError, match="channels"):
        model(torch.zeros(2, 99, 4, 4, device=device), domains=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="requires domain labels"):
        model(images(device))


def test_an_unknown_stage_lists_the_stages() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"no stage 'boddy'. Did you mean 'body'.*stem, body, head"):
        mix_after(model, ["stem", "boddy"])
    assert feature_layers(model) == [], "nothing is inserted if one name is wrong"
    with pytest.raises(ValueError, match="stages is empty"):
        mix_after(Net(), [])
    with pytest.raises(TypeError, match="got ReLU"):
        mix_after(Net(), ["stem"], nn.ReLU())
    assert stages_of(Net()) == {}


def test_a_stage_that_returns_no_tensor() -> None:
    model = nn.ModuleDict({"rnn": nn.LSTM(4, 4, batch_first=True)})
    mix_after(model, ["rnn"])
    with pytest.raises(TypeError, match="stage 'rnn' returns tuple"):
        model["rnn"](torch.rand(2, 3, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_amp(dtype: torch.dtype, device: torch.device) -> None:
    model = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    with torch.autocast(device.type, dtype=dtype):
        loss = model(images(device)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_model_with_a_domains_argument_receives_it(device: torch.device) -> None:
    class TakesDomains(Net):
        def forward(self, x: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
            assert domains is not None
            return super().forward(x)

    model = mix_after(TakesDomains().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0, pairing="crossdomain"))
    assert mixing(model, images(device), domains=torch.arange(6))


def test_a_stage_is_mixed_once(device: torch.device) -> None:
    model = mix_after(Net(), ["stem", "stem"])
    assert len(model.stem._forward_hooks) == 1
    with pytest.raises(ValueError, match="'stem' is already mixed; call unmix"):
        mix_after(model, ["body", "stem"])
    assert not model.body._forward_hooks


def test_a_stage_and_its_last_block_are_not_both_mixed() -> None:
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))
    model.grad_checkpointing = False  # as in timm's models, where the last block is hooked for its stage
    with pytest.raises(ValueError, match=r"0, 0\.1 have the same output"):
        mix_after(model, ["0", "0.1"])


def test_the_output_of_a_residual_stage_is_mixed() -> None:
    class Residual(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + super().forward(x)

    model = nn.Sequential(Residual(nn.Conv2d(3, 3, 1)))
    model.grad_checkpointing = False  # as in timm's models
    mix_after(model, ["0"], EFDMix(p=1.0, alpha=None, pairing="halves"))
    x = torch.rand(2, 3, 4, 4)
    with active(model, False):
        plain = model(x)
    assert torch.equal(model(x), efdm(plain, plain.flip(0)))


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"torch.nn.Module, got str"):
        mix_after("resnet18")
    for wrapped in (torch.compile(Net()), nn.DataParallel(Net())):
        with pytest.raises(ValueError, match=rf"{type(wrapped).__name__}.* call mix_after .*before"):
            mix_after(wrapped, ["stem"])
    mix_after(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), [1])
    with pytest.raises(TypeError, match="stages must be names, got int"):
        mix_after(nn.Sequential(nn.ReLU()), 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"stages must be names, got EFDMix.*mix="):
        mix_after(nn.Sequential(nn.ReLU()), EFDMix(), ["0"])  # type: ignore[arg-type]


def test_models_of_two_families_share_a_layer() -> None:
    models = pytest.importorskip("torchvision.models")
    shared = EFDMix(p=1.0)
    vit = mix_after(models.VisionTransformer(32, 16, 2, 4, 32, 64), "encoder.layers.encoder_layer_0", shared)
    mix_after(models.resnet18(weights=None), "stage1", shared)
    hook = next(iter(vit.encoder.layers[0]._forward_hooks.values()))
    assert hook.layout == (-1, 1)
    assert (shared.channel_dim, shared.prefix) == (None, None)


@pytest.mark.parametrize(
    ("settings", "layout"),
    [({"prefix": 5}, (-1, 5)), ({"channel_dim": 2}, (2, 1)), ({"channel_dim": 1, "prefix": 0}, (1, 0)), ({}, (-1, 1))],
    ids=str,
)
def test_the_family_completes_the_settings_of_the_layer(settings: dict, layout: tuple[int, int]) -> None:
    models = pytest.importorskip("torchvision.models")
    vit = mix_after(models.VisionTransformer(32, 16, 2, 4, 32, 64), "stage1", EFDMix(**settings))
    assert next(iter(vit.encoder.layers[0]._forward_hooks.values())).layout == layout


def test_a_prefix_without_tokens_is_refused() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"prefix=1 .*channel_dim=-1"):
        mix_after(model, ["stem", "body"], [EFDMix(), DSU(prefix=1)])
    assert feature_layers(model) == []


def test_hooks_registered_on_a_loaded_model_do_not_replace_the_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = pickle.dumps(mix_after(nn.Sequential(nn.Conv1d(2, 3, 1)), ["0"]))
    monkeypatch.setattr(torch.utils.hooks.RemovableHandle, "next_id", 0)  # as in a new process
    model = pickle.loads(saved)
    model[0].register_forward_hook(lambda *args: None)
    model.register_forward_pre_hook(lambda *args: None)
    assert len(feature_layers(model)) == 1
    model(torch.rand(2, 2, 5), domains=torch.tensor([0, 1]))


def test_threads_that_share_a_model_have_separate_labels() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = mix_after(nn.Sequential(nn.Conv1d(2, 3, 1)), ["0"], EFDMix(p=1.0, alpha=5.0, pairing="crossdomain"))

    def work(batch: int) -> None:
        for _ in range(150):
            model(torch.randn(batch, 2, 5), domains=torch.arange(batch))
            with domains_of_batch(torch.arange(batch)):
                model(torch.randn(batch, 2, 5))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (3, 4)))


def test_a_module_with_two_names() -> None:
    conv = nn.Conv2d(3, 4, 3)
    mix_after(nn.ModuleDict({"a": conv, "b": conv}), ["b"])
    assert len(conv._forward_hooks) == 1


def test_one_layer_per_stage(device: torch.device) -> None:
    layers = [EFDMix(p=1.0), DSU(p=1.0)]
    model = mix_after(Net().to(device), ["stem", "body"], layers)
    assert feature_layers(model) == layers
    assert mixing(model, images(device))
    with pytest.raises(ValueError, match="2 layers for 1 stages"):
        mix_after(Net(), ["stem"], layers)


def test_find_stage_returns_the_layout() -> None:
    net = Net()
    assert find_stage(net, "body") == ("body", net.body, (1, 0), False)
    models = pytest.importorskip("torchvision.models")
    vit = models.VisionTransformer(32, 16, 2, 4, 32, 64)
    assert find_stage(vit, "stage2") == ("encoder.layers.encoder_layer_1", vit.encoder.layers[1], (-1, 1), True)


# --- calls that would not mix ----------------------------------------------------------------------------------------------


class Bypassing(Net):
    """Call the blocks of ``body`` and never ``body`` itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.body:
            x = block(x)
        return self.head(x.mean((2, 3)))


def test_a_training_forward_that_reaches_no_stage_raises() -> None:
    x = torch.rand(4, 3, 8, 8)
    model = mix_after(Bypassing(), ["body"], EFDMix(p=1.0))
    with pytest.raises(RuntimeError, match=r"none of its mixed stages \('body'\)"):
        model(x)
    model.eval()(x)
    unmix(model.train().body)
    model(x)


def test_a_stage_that_is_not_called_beside_others_warns() -> None:
    model = mix_after(Bypassing(), ["stem", "body"], EFDMix(p=1.0))
    with pytest.warns(UserWarning, match="did not call 'body'"):
        model(torch.rand(4, 3, 8, 8))


@pytest.mark.parametrize("stages", [["body.1"], ["stem", "body.1"]], ids=str)
def test_a_replaced_module_raises(stages: list[str]) -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(mix_after(Net(), stages, EFDMix(p=1.0)))
    model.body[1].forward = nn.Identity()  # SyncBatchNorm itself needs a process group
    with pytest.raises(RuntimeError, match=r"'body\.1'.*convert_sync_batchnorm"):
        model(torch.rand(4, 3, 8, 8))


def test_tracers_that_cannot_record_a_mixing_layer() -> None:
    model, x = mix_after(Net(), ["body"], EFDMix(p=1.0)), torch.rand(2, 3, 8, 8)
    with pytest.raises(TypeError, match=r"torch\.fx.*'body'.*unmix"):
        torch.fx.symbolic_trace(model)
    with active(model, False):
        traced = torch.fx.symbolic_trace(model)
    assert torch.equal(traced.eval()(x), model.eval()(x))
    with pytest.raises(AttributeError, match=r"torch\.jit\.script.*unmix"):
        torch.jit.script(model)


# --- layouts ---------------------------------------------------------------------------------------------------------------


def test_three_dimensional_features_of_unknown_layout_warn() -> None:
    tokens = torch.rand(2, 5, 8)
    model = mix_after(nn.Sequential(nn.LayerNorm(8)), ["0"], EFDMix(p=1.0))
    with pytest.warns(UserWarning, match=r"\(2, 5, 8\).*channel_dim=-1"):
        model(tokens)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(tokens)  # warns once per layer
        torch.compile(mix_after(nn.Sequential(nn.LayerNorm(8)), ["0"]), fullgraph=True, backend="eager")(tokens)
        mix_after(unmix(model), ["0"], EFDMix(p=1.0, channel_dim=-1))(tokens)
        mix_after(nn.Sequential(nn.Conv1d(5, 3, 1)), ["0"], EFDMix(p=1.0))(tokens)
