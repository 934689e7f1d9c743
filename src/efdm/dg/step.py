"""One training step of a classifier: choose pictures, change them, forward, backward, update. All of it on the device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.dg.augment import augmented
from efdm.dg.methods import attach
from efdm.dg.settings import OPTIMIZERS, Settings
from efdm.nn import domains_of_batch, feature_layers, find_stage, stages_of
from efdm.ops.generator import default_generator
from efdm.training import Capture, autocast
from efdm.training.checkpoint import restore_optimizer, set_rate
from efdm.training.compiled import compiled

PLAIN = (nn.Conv2d, nn.Linear)  # nothing is gained by compiling one alone


class Step:
    """Trains ``model`` on ``data``, both on the device of the settings. Puts the method into the model.

    What an iteration draws follows from the seed and its number alone, so that a resumed run is the run.
    """

    def __init__(self, model: nn.Module, data: DomainSet, settings: Settings) -> None:
        self.device = torch.device(settings.device)
        self.model = model.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.data, self.settings = data, settings
        self.targets = torch.eye(len(data.classes), device=self.device)[data.labels]
        self.generator = torch.Generator(self.device)
        # torch's own is for dropout of the model's. Runs side by side on a GPU share it: such masks are not repeatable there
        self.generators = (self.generator, default_generator(self.device))
        method = attach(settings.method, model, settings.stages, generator=self.generator, **settings.options)
        self.change, self.penalty = method.change, method.penalty
        hooked = [] if self.penalty is None else [classifier_of(model)]
        self.parts = list(parts_to_compile(model, hooked)) if "compile" in settings.speed else []
        train_mode(model, settings.batchnorm)
        _check_mixed(model, settings)
        self.optimizer = make_optimizer(list(model.parameters()), settings)
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True  # shapes do not change
            torch.set_float32_matmul_precision("high")
        self.run = Capture(
            self._step, self.optimizer, device=self.device, changed=[*model.parameters(), *model.buffers()],
            generator=self.generator, how="graph" if "graph" in settings.speed else "plain",
        )  # fmt: skip

    def prepare(self, indices: Tensor) -> None:
        """Record the graph, or do one step that is undone, so that the first step is like all others. Changes nothing."""
        self.run.prepare(indices)

    def __call__(self, iteration: int, indices: Tensor, lr: float) -> Tensor:
        """The loss before the update, on the device; the next step may overwrite it."""
        for generator, seed in zip(self.generators, seeds_of(self.settings.seed, iteration), strict=True):
            generator.manual_seed(seed)
        set_rate(self.optimizer, lr)
        return self.run(indices)["loss"]

    def _step(self, indices: Tensor) -> dict[str, Tensor]:
        settings, data = self.settings, self.data
        pictures = augmented(data.images[indices], settings.augmentation, settings.size, self.generator)
        pictures, targets = self.change(pictures, self.targets[indices])
        code = compiled(self.parts) if self.parts else nullcontext()
        domains = data.domains[indices]
        features: list[Tensor] = []
        watch = nullcontext() if self.penalty is None else classifier_inputs(self.model, features)
        with autocast(self.device, settings.precision), domains_of_batch(domains), code, watch:
            logits = self.model(pictures).float()
            loss = F.cross_entropy(logits, targets)
        if self.penalty is not None:
            loss = loss + self.penalty(features[0].flatten(1).float(), logits, targets, domains)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"loss": loss.detach()}

    def release(self) -> None:
        """Give the memory of the graph back; the model stays."""
        self.run.release()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        restore_optimizer(self.optimizer, state["optimizer"])


def seeds_of(seed: int, iteration: int) -> tuple[int, int]:
    """Two seeds for an iteration. Hashed: neighbours have nothing in common."""
    mixed = hashlib.sha256(f"step {seed}/{iteration}".encode()).digest()
    return int.from_bytes(mixed[:4], "little"), int.from_bytes(mixed[4:8], "little")


def make_optimizer(parameters: list[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    device = torch.device(settings.device)
    on_gpu = device.type == "cuda"
    # a tensor on a GPU: a recorded graph reads it anew at every replay. Fused: foreach would read a tensor back, once.
    rate = torch.tensor(settings.lr, device=device) if on_gpu else settings.lr
    kind, own = OPTIMIZERS[settings.optimizer]
    values: dict[str, Any] = {"momentum": settings.momentum, "capturable": on_gpu}
    common: dict[str, Any] = {"lr": rate, "weight_decay": settings.weight_decay, "fused": on_gpu or None}
    return kind(parameters, **common, **{name: values[name] for name in own})


def train_mode(model: nn.Module, batchnorm: str) -> None:
    """Everything learns; frozen BatchNorm keeps its means and variances, its scale and shift learn, too."""
    model.train()
    if batchnorm == "frozen":
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()


def _check_mixed(model: nn.Module, settings: Settings) -> None:
    """Raise where a method would do nothing: features are mixed after stages in training mode alone."""
    frozen = (
        [name for name in settings.stages if not find_stage(model, name).module.training] if feature_layers(model) else []
    )
    if frozen:
        raise ValueError(
            f"{frozen[0]} is a BatchNorm, which batchnorm='frozen' keeps out of training mode, and nothing is mixed after "
            "it; name the module that it is part of as the stage, or use batchnorm='train'"
        )


def classifier_of(model: nn.Module) -> nn.Module:
    """Return the module that maps features to logits: timm's ``get_classifier()``, or the last linear layer."""
    if hasattr(model, "get_classifier"):
        return model.get_classifier()  # type: ignore[no-any-return, operator]
    return [module for module in model.modules() if isinstance(module, nn.Linear)][-1]


@contextmanager
def classifier_inputs(model: nn.Module, found: list[Tensor]) -> Iterator[None]:
    """Append the inputs of the classifier to ``found`` in this block."""
    handle = classifier_of(model).register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    try:
        yield
    finally:
        handle.remove()


def parts_to_compile(model: nn.Module, hooked: Iterable[nn.Module] = ()) -> Iterator[nn.Module]:
    """The largest modules inside which no stage ends and no hook sits, but for single convolutions: layers between stages
    stay outside of compiled code, whatever the method, and so all methods share it."""
    ends = {*hooked, *(model.get_submodule(name) for name in stages_of(model).values())}

    def parts(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            inside = [m for m in child.modules() if m is not child]
            if any(m in ends or m._forward_hooks or m._forward_pre_hooks for m in inside):
                yield from parts(child)
            elif any(True for _ in child.parameters()) and not isinstance(child, PLAIN):
                yield child

    return parts(model)
