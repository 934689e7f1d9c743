"""Inserted layers under gradient checkpointing and torch.compile."""

from __future__ import annotations

import pickle

import pytest
import torch
from small_net import Net, images, mixing
from torch import nn
from torch.utils.checkpoint import checkpoint

from efdm import EFDMix, active, domains_of_batch, mix_after


@pytest.mark.parametrize("pairing", ["random", "crossdomain"])
def test_gradient_checkpointing_repeats_the_draws(pairing: str, device: torch.device) -> None:
    x, domains, grads = images(device), torch.tensor([0, 0, 1, 1, 2, 2]), []
    for checkpointed in (False, True):
        torch.manual_seed(3)
        model = mix_after(Net(checkpointed).to(device), ["body"], EFDMix(p=1.0, alpha=5.0, pairing=pairing))
        mix_after(model, ["body.0"], EFDMix(p=1.0, alpha=5.0, pairing=pairing))
        torch.manual_seed(4)
        model(x, domains=domains).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_two_forwards_before_one_backward(reentrant: bool, device: torch.device) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(2, 3, 1), EFDMix(p=1.0, alpha=1.0, pairing="crossdomain", channel_dim=1), nn.Conv1d(3, 3, 1), nn.Tanh()
    ).to(device)
    grads = []
    # the plain run comes second, so that the checkpointed run cannot use its stored labels
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


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["random", "crossdomain"])
def test_compiled_model_without_graph_breaks(pairing: str, device: torch.device) -> None:
    torch._dynamo.reset()
    model = mix_after(Net().to(device), ["stem", "body"], EFDMix(p=1.0, alpha=5.0, pairing=pairing))
    x, domains = images(device), torch.arange(6, device=device)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    if pairing == "random":
        assert mixing(compiled, x)
        compiled(x).sum().backward()
    with domains_of_batch(domains):
        assert mixing(compiled, x)
    assert mixing(compiled, x, domains=domains)
    with active(model, False):
        assert not mixing(compiled, x)
    model.eval()
    assert not mixing(compiled, x)


@pytest.mark.slow
def test_code_compiled_for_an_unmixed_model_is_not_reused(device: torch.device) -> None:
    torch._dynamo.reset()
    x = images(device)
    early = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0))
    torch.compile(Net().to(device), backend="aot_eager")(x)
    assert mixing(torch.compile(early, backend="aot_eager"), x)
    late = mix_after(Net().to(device), ["stem"], EFDMix(p=1.0, alpha=5.0))
    assert mixing(torch.compile(late, backend="aot_eager"), x)
    assert not mixing(torch.compile(Net().to(device), backend="aot_eager"), x)


@pytest.mark.slow
def test_compiled_and_checkpointed(device: torch.device) -> None:
    torch._dynamo.reset()
    model = mix_after(Net(checkpointed=True).to(device), ["body", "body.0"], EFDMix(p=1.0, alpha=5.0))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = images(device)
    assert mixing(compiled, x)
    compiled(x).sum().backward()


@pytest.mark.slow
def test_a_compiled_model_that_reaches_no_stage_raises() -> None:
    torch._dynamo.reset()
    model = nn.ModuleDict({"called": nn.Conv1d(2, 3, 1), "never_called": nn.Conv1d(2, 3, 1)})
    model.forward = model["called"].forward
    compiled = torch.compile(mix_after(model, ["never_called"]), backend="eager")
    with pytest.raises(RuntimeError, match="'never_called'"):
        compiled(torch.rand(2, 2, 5))


@pytest.mark.parametrize("part", ["stages", "function"])
def test_parts_of_an_eager_model_may_be_compiled(part: str) -> None:
    torch._dynamo.reset()
    model, x = mix_after(Net(), ["stem", "body"], EFDMix(p=1.0, alpha=5.0)), torch.rand(6, 3, 8, 8)
    if part == "stages":
        model.stem.compile(backend="eager")
        model.body.compile(backend="eager")
    else:
        model.forward = torch.compile(model.forward, backend="eager")
    assert mixing(model, x)


def test_compilers_guard_on_the_hooks_of_a_loaded_model() -> None:
    saved = pickle.dumps(mix_after(nn.Sequential(nn.Conv1d(2, 3, 1)), ["0"]))
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=True):  # as in a new process
        pickle.loads(saved)
        assert not torch._dynamo.config.skip_nnmodule_hook_guards


def test_labels_of_a_failed_compiled_call_are_dropped() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(mix_after(Net(), ["stem"], EFDMix(p=1.0, pairing="crossdomain")), backend="eager")
    with pytest.raises(RuntimeError):
        compiled(torch.zeros(4, 99, 4, 4), domains=torch.arange(4))
    with pytest.raises(ValueError, match="requires domain labels"):
        torch.compile(EFDMix(p=1.0, pairing="crossdomain"), backend="eager")(torch.rand(4, 3, 5, 5))


def test_checkpointing_with_an_own_generator_raises(device: torch.device) -> None:
    layer = EFDMix(p=1.0, generator=torch.Generator(device))
    model = mix_after(Net(checkpointed=True).to(device), ["body.0"], layer)
    with pytest.raises(RuntimeError, match="generator=None"):
        model(images(device)).sum().backward()
