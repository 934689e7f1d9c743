from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from small_net import Net, images, mixing
from torch import nn

from efdm import EFDMix, active, domains_of_batch, mix_after, set_active, unmix
from efdm.nn import DSU, find_stage, mixes_of, stages_of


def test_mixes_in_training_only(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0)), images(device)
    assert mixing(model, x)
    assert not mixing(model.eval(), x)
    assert mixing(model.train(), x)


def test_checkpoint_keys_stay(device: torch.device) -> None:
    model = Net().to(device)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    mix_after(model, ["stem"], EFDMix())
    assert list(model.state_dict()) == list(before)
    model.load_state_dict(before, strict=True)
    assert [n for n, _ in model.named_modules()] == [n for n, _ in Net().named_modules()]


def test_removable(device: torch.device) -> None:
    model = Net().to(device)
    x = images(device)
    mix_after(model, ["stem", "body"], EFDMix(p=1.0, alpha=5.0))
    assert unmix(model) is model
    assert mixes_of(model) == []
    assert not mixing(model, x)
    with pytest.raises(TypeError, match="domains"):
        model(x, domains=torch.zeros(6))
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("copies", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_mix_on_their_own(copies, device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0, pairing="crossdomain")), images(device)
    twin = copies(model)
    assert mixing(twin, x, domains=torch.arange(6))
    set_active(twin, False)
    assert not mixing(twin, x, domains=torch.arange(6))
    assert mixing(model, x, domains=torch.arange(6))
    assert len(mixes_of(twin)) == 1


def test_each_insertion_draws_anew(device: torch.device) -> None:
    seen = []

    class Seeing(EFDMix):
        def forward(self, features: torch.Tensor, domains=None, layout=None) -> torch.Tensor:
            out = super().forward(features, domains, layout)
            seen.append(torch.equal(out, features))
            return out

    model = mix_after(Net().to(device), ["stem", "body"], Seeing(p=0.5, alpha=5.0))
    for _ in range(30):
        model(images(device))
    assert len(seen) == 60
    assert any(a != b for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_switches(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0)), images(device)
    assert not mixing(set_active(model, False), x)
    with active(model):
        assert mixing(model, x)
    assert not mixing(model, x)
    assert mixing(set_active(model), x)
    with active(model, False), pytest.raises(RuntimeError), active(model):
        raise RuntimeError
    assert mixing(model, x)


def test_switches_reach_layers_of_the_model_itself(device: torch.device) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), EFDMix(p=1.0, alpha=5.0)).to(device)
    x = images(device)
    with active(model, False):
        assert not mixing(model, x)
    assert mixing(model, x)


def test_domains_by_argument_and_by_block(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0, pairing="crossdomain")), images(device)
    domains = torch.tensor([0, 0, 1, 1, 2, 2])
    assert mixing(model, x, domains=domains)
    with domains_of_batch(domains):
        assert mixing(model, x), "the block's labels must survive the first call"
        model(x, domains=torch.tensor([0, 1, 2, 3, 4, 5]))
        assert mixing(model, x)
    with pytest.raises(ValueError, match="needs domain labels"):
        model(x)
    with pytest.raises(ValueError, match="needs domain labels"):
        model(x)  # a failed call leaves nothing behind


@pytest.mark.parametrize("names", [["a", "b"] * 3, np.array(["a", "b"] * 3), [None] * 6], ids=["list", "array", "none"])
def test_domains_by_name_are_told_how_to_become_labels(device: torch.device, names) -> None:
    model = mix_after(Net().to(device), ["stem"], EFDMix(pairing="crossdomain"))
    with pytest.raises(ValueError, match=r"labels are integers, a tensor \(b,\), .* torch\.tensor\(\[names\.index"):
        model(images(device), domains=names)
    model(images(device), domains=[0, 1] * 3)


def test_domains_are_dropped_after_a_call_that_failed(device: torch.device) -> None:
    model = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, pairing="crossdomain"))
    with pytest.raises(RuntimeError):
        model(torch.zeros(2, 99, 4, 4, device=device), domains=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="needs domain labels"):
        model(images(device))


def test_wrong_names_list_the_stages() -> None:
    with pytest.raises(ValueError, match=r"no stage 'boddy'. Did you mean 'body'.*stem, body, head"):
        mix_after(Net(), ["boddy"])
    with pytest.raises(ValueError, match="stages is empty"):
        mix_after(Net(), [])
    with pytest.raises(TypeError, match="got ReLU"):
        mix_after(Net(), ["stem"], nn.ReLU())
    assert stages_of(Net()) == {}


def test_nothing_is_inserted_when_one_name_is_wrong(device: torch.device) -> None:
    model = Net()
    with pytest.raises(ValueError, match="nowhere"):
        mix_after(model, ["stem", "nowhere"])
    assert mixes_of(model) == []


def test_a_stage_that_returns_no_tensor() -> None:
    model = nn.ModuleDict({"rnn": nn.LSTM(4, 4, batch_first=True)})
    mix_after(model, ["rnn"])
    with pytest.raises(TypeError, match="stage 'rnn' returns tuple"):
        model["rnn"](torch.rand(2, 3, 4))


def test_a_stage_kept_in_eval_is_left_alone(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0)), images(device)
    model.stem.eval()
    assert not mixing(model, x)


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


def test_a_model_that_wants_domains_gets_them(device: torch.device) -> None:
    class Wants(Net):
        def forward(self, x: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
            assert domains is not None
            return super().forward(x)

    model = mix_after(Wants().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0, pairing="crossdomain"))
    assert mixing(model, images(device), domains=torch.arange(6))


def test_a_stage_is_mixed_once(device: torch.device) -> None:
    model = mix_after(Net(), ["stem", "stem"])
    assert len(model.stem._forward_hooks) == 1
    with pytest.raises(ValueError, match="'stem' is mixed already; call unmix"):
        mix_after(model, ["body", "stem"])
    assert not model.body._forward_hooks


def test_helpful_when_given_something_else() -> None:
    with pytest.raises(TypeError, match=r"torch.nn.Module, got str"):
        mix_after("resnet18")
    with pytest.raises(ValueError, match=r"mix_after on the model first"):
        mix_after(torch.compile(Net()), ["stem"])
    mix_after(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), [1])


def test_settings_of_the_users_own_win() -> None:
    models = pytest.importorskip("torchvision.models")
    mix = EFDMix(channel_dim=2, prefix=0)
    mix_after(models.resnet18(weights=None), "stage1", mix)
    assert mix.channel_dim == 2
    shared = EFDMix(p=1.0)
    vit = mix_after(models.vit_b_16(weights=None, image_size=32), "encoder.layers.encoder_layer_0", shared)
    mix_after(models.resnet18(weights=None), "stage1", shared)
    hook = next(iter(vit.encoder.layers[0]._forward_hooks.values()))
    assert hook.layout == (-1, 1)
    assert (shared.channel_dim, shared.prefix) == (None, None)


@pytest.mark.parametrize(
    ("settings", "layout"),
    [({"prefix": 5}, (-1, 5)), ({"channel_dim": 2}, (2, 1)), ({"channel_dim": 1, "prefix": 0}, (1, 0)), ({}, (-1, 1))],
    ids=str,
)
def test_what_a_layer_does_not_say_is_what_is_known_of_the_stage(settings: dict, layout: tuple[int, int]) -> None:
    models = pytest.importorskip("torchvision.models")
    vit = mix_after(models.vit_b_16(weights=None, image_size=32), "stage1", EFDMix(**settings))
    assert next(iter(vit.encoder.layers[0]._forward_hooks.values())).layout == layout


def test_a_prefix_where_tokens_would_be_channels_is_refused() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"prefix=1 are leading tokens.*channel_dim=-1"):
        mix_after(model, ["stem", "body"], [EFDMix(), DSU(prefix=1)])
    assert mixes_of(model) == []


def test_a_loaded_model_keeps_its_hooks(tmp_path) -> None:
    import subprocess
    import sys

    torch.save(mix_after(nn.Sequential(nn.Conv1d(2, 3, 1)), ["0"]), tmp_path / "model.pt")
    script = (
        f"import torch; from efdm.nn import mixes_of; m = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False); "
        "m[0].register_forward_hook(lambda *a: None); m.register_forward_pre_hook(lambda *a: None); "
        "assert len(mixes_of(m)) == 1; m(torch.rand(2, 2, 5), domains=torch.tensor([0, 1]))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_threads_that_share_a_model_keep_their_labels() -> None:
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


def test_a_layer_for_each_stage(device: torch.device) -> None:
    layers = [EFDMix(p=1.0), DSU(p=1.0)]
    model = mix_after(Net().to(device), ["stem", "body"], layers)
    assert mixes_of(model) == layers
    assert mixing(model, images(device))
    with pytest.raises(ValueError, match="2 layers for 1 stages"):
        mix_after(Net(), ["stem"], layers)
    with pytest.raises(TypeError, match="got ReLU"):
        mix_after(Net(), ["stem", "body"], [EFDMix(), nn.ReLU()])


def test_stages_are_found_with_their_layout() -> None:
    net = Net()
    assert find_stage(net, "body") == ("body", net.body, (1, 0))
    models = pytest.importorskip("torchvision.models")
    vit = models.vit_b_16(weights=None, image_size=32)
    assert find_stage(vit, "stage2") == ("encoder.layers.encoder_layer_1", vit.encoder.layers[1], (-1, 1))
