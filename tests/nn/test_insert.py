from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from efdm import EFDMix, activate, activated, deactivate, deactivated, domains_of_batch, mix_after, unmix
from efdm.nn import DSU, find_stage, mixes_of, stages_of


class Net(nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = checkpoint(self.body, x, use_reentrant=False) if self.checkpointed else self.body(x)
        return self.head(x.mean((2, 3)))


def images(device: torch.device, batch: int = 6) -> torch.Tensor:
    return torch.randn(batch, 3, 10, 10, device=device)


def mixing(model: nn.Module, x: torch.Tensor, **kwargs) -> bool:
    """Whether two calls differ: batch statistics aside, only mixing makes them."""
    return not torch.equal(model(x, **kwargs), model(x, **kwargs))


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
    model, x = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0, mix="crossdomain")), images(device)
    twin = copies(model)
    assert mixing(twin, x, domains=torch.arange(6))
    deactivate(twin)
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
    assert not mixing(deactivate(model), x)
    with activated(model):
        assert mixing(model, x)
    assert not mixing(model, x)
    assert mixing(activate(model), x)
    with deactivated(model), pytest.raises(RuntimeError), activated(model):
        raise RuntimeError
    assert mixing(model, x)


def test_switches_reach_layers_of_the_model_itself(device: torch.device) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), EFDMix(p=1.0, alpha=5.0)).to(device)
    x = images(device)
    with deactivated(model):
        assert not mixing(model, x)
    assert mixing(model, x)


def test_domains_by_argument_and_by_block(device: torch.device) -> None:
    model, x = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0, mix="crossdomain")), images(device)
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
    model = mix_after(Net().to(device), ["stem"], EFDMix(mix="crossdomain"))
    with pytest.raises(ValueError, match=r"labels are integers, a tensor \(b,\), .* torch\.tensor\(\[names\.index"):
        model(images(device), domains=names)
    model(images(device), domains=[0, 1] * 3)


def test_domains_are_dropped_after_a_call_that_failed(device: torch.device) -> None:
    model = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, mix="crossdomain"))
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


@pytest.mark.parametrize("mix", ["random", "crossdomain"])
def test_gradient_checkpointing_repeats_the_draws(mix: str, device: torch.device) -> None:
    x, domains, grads = images(device), torch.tensor([0, 0, 1, 1, 2, 2]), []
    for checkpointed in (False, True):
        torch.manual_seed(3)
        model = mix_after(Net(checkpointed).to(device), ["body"], EFDMix(p=1.0, alpha=5.0, mix=mix))
        mix_after(model, ["body.0"], EFDMix(p=1.0, alpha=5.0, mix=mix))
        torch.manual_seed(4)
        model(x, domains=domains).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_checkpointing_with_a_generator_of_ones_own_is_refused(device: torch.device) -> None:
    layer = EFDMix(p=1.0, generator=torch.Generator(device))
    model = mix_after(Net(checkpointed=True).to(device), ["body.0"], layer)
    with pytest.raises(RuntimeError, match="cannot be rewound"):
        model(images(device)).sum().backward()


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


@pytest.mark.slow
@pytest.mark.parametrize("mix", ["random", "crossdomain"])
def test_compiled_model_without_graph_breaks(mix: str, device: torch.device) -> None:
    torch._dynamo.reset()
    model = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0, mix=mix))
    x, domains = images(device), torch.arange(6, device=device)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    if mix == "random":
        assert mixing(compiled, x)
        compiled(x).sum().backward()
    with domains_of_batch(domains):
        assert mixing(compiled, x)
    assert mixing(compiled, x, domains=domains)
    with deactivated(model):
        assert not mixing(compiled, x)
    model.eval()
    assert not mixing(compiled, x)


@pytest.mark.slow
def test_a_plain_model_compiled_before_does_not_hide_the_mixing(device: torch.device) -> None:
    torch._dynamo.reset()
    x = images(device)
    early = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0))
    torch.compile(Net().to(device), backend="aot_eager")(x)
    assert mixing(torch.compile(early, backend="aot_eager"), x)
    late = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0))
    assert mixing(torch.compile(late, backend="aot_eager"), x)
    assert not mixing(torch.compile(Net().to(device), backend="aot_eager"), x)


def test_a_model_that_wants_domains_gets_them(device: torch.device) -> None:
    class Wants(Net):
        def forward(self, x: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
            assert domains is not None
            return super().forward(x)

    model = mix_after(Wants().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0, mix="crossdomain"))
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


def test_compilers_look_at_the_hooks_of_a_loaded_model() -> None:
    saved = pickle.dumps(mix_after(nn.Sequential(nn.Conv1d(2, 3, 1)), ["0"]))
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=True):  # as in a new process
        pickle.loads(saved)
        assert not torch._dynamo.config.skip_nnmodule_hook_guards


def test_labels_of_a_compiled_call_that_failed_are_dropped() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(mix_after(Net(), ["stem"], EFDMix(p=1.0, mix="crossdomain")), backend="eager")
    with pytest.raises(RuntimeError):
        compiled(torch.zeros(4, 99, 4, 4), domains=torch.arange(4))
    with pytest.raises(ValueError, match="needs domain labels"):
        torch.compile(EFDMix(p=1.0, mix="crossdomain"), backend="eager")(torch.rand(4, 3, 5))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_two_forwards_before_one_backward(reentrant: bool, device: torch.device) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 3, 1), EFDMix(p=1.0, alpha=1.0, mix="crossdomain"), nn.Conv1d(3, 3, 1), nn.Tanh()).to(
        device
    )
    grads = []
    # the plain run second: what it remembers must not help the other
    for run in (lambda x: checkpoint(net, x, use_reentrant=reentrant), net):
        torch.manual_seed(1)
        inputs = [torch.randn(4, 2, 7, device=device, requires_grad=True) for _ in range(2)]
        losses = []
        for x, labels in zip(inputs, ([0, 0, 1, 1], [0, 1, 2, 3]), strict=True):
            with domains_of_batch(torch.tensor(labels)):
                losses.append(run(x).square().sum())
                if len(losses) == 2:
                    sum(losses).backward()  # while the second batch's labels are current
        grads.append([x.grad for x in inputs])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


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

    model = mix_after(nn.Sequential(nn.Conv1d(2, 3, 1)), ["0"], EFDMix(p=1.0, alpha=5.0, mix="crossdomain"))

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
