"""The training step of a classifier: select images, augment, forward, loss. The whole step runs on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.dg.augment import augmented
from efdm.dg.methods import attach
from efdm.dg.settings import Settings
from efdm.errors import SettingError
from efdm.models import classifier_of, embedding
from efdm.nn import domains_of_batch, feature_layers, find_stage, stages_of
from efdm.training import autocast
from efdm.training.compiled import compiled
from efdm.training.step import Step

SINGLE = (nn.Conv2d, nn.Linear)  # compiling these alone gains nothing


def make_step(model: nn.Module, data: DomainSet, settings: Settings) -> Step:
    """Insert the method into ``model`` and return the step that trains it on ``data``, given indices of images.

    The data must be on the device of the settings; the model is moved there. Streamed images are a second input of the step.
    """
    device = torch.device(settings.device)
    model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = torch.Generator(device)
    method = attach(settings.method, model, settings.stages, generator=generator, **settings.options)
    targets = torch.eye(len(data.classes), device=device)[data.labels]
    hooked = [] if method.penalty is None else [classifier_of(model)]
    parts = list(parts_to_compile(model, hooked)) if "compile" in settings.speed else []
    model.train()
    if settings.batchnorm == "frozen":  # running statistics are kept; scale and shift are trained
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
    _check_mixed(model, settings)

    def losses(indices: Tensor, streamed: Tensor | None = None) -> dict[str, Tensor]:
        images = data.images[indices] if streamed is None else streamed
        images = augmented(images, settings.augmentation, settings.size, generator)
        images, wanted = method.change(images, targets[indices])
        domains = data.domains[indices]
        with ExitStack() as stack:
            stack.enter_context(autocast(device, settings.precision))
            stack.enter_context(domains_of_batch(domains))
            if parts:
                stack.enter_context(compiled(parts))
            if method.penalty is None:
                logits = model(images)
            else:
                features, logits = embedding(model, images)
            logits = logits.float()
            loss = F.cross_entropy(logits, wanted)
        if method.penalty is not None:  # outside of autocast, in float32
            loss = loss + method.penalty(features.float(), logits, wanted, domains)
        return {"loss": loss}

    # Dropout draws from the default generator. Lanes on a GPU share that generator, so dropout masks are not repeatable
    # there.
    return Step(
        losses, {"model": model}, device=device, optimizer=settings.optimizer, lr=settings.lr, momentum=settings.momentum,
        weight_decay=settings.weight_decay, speed=settings.speed, generator=generator, seed=settings.seed,
    )  # fmt: skip


def _check_mixed(model: nn.Module, settings: Settings) -> None:
    """Raise SettingError for a stage that is a frozen batch norm: features are mixed in training mode only."""
    stages = settings.stages if feature_layers(model) else ()
    frozen = [name for name in stages if not find_stage(model, name).module.training]
    if frozen:
        message = f"stage {frozen[0]} is a batch norm, which batchnorm='frozen' keeps in eval mode, where nothing is mixed; "
        raise SettingError(f"{message}use the enclosing module as the stage, or batchnorm='train'", ("stages", "batchnorm"))


def parts_to_compile(model: nn.Module, hooked: Iterable[nn.Module] = ()) -> Iterator[nn.Module]:
    """Yield the largest modules that contain neither the end of a stage nor a hook, except for single convolutions.

    Max pooling is included, because its backward in channels_last format is slow unless compiled. Layers between stages are
    never compiled, so all methods share the compiled code. ``hooked`` modules get a hook later.
    """
    ends = {*hooked, *(model.get_submodule(name) for name in stages_of(model).values())}

    def parts(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            inside = [m for m in child.modules() if m is not child]
            if any(m in ends or m._forward_hooks or m._forward_pre_hooks for m in inside):
                yield from parts(child)
            elif isinstance(child, nn.MaxPool2d) or (
                any(True for _ in child.parameters()) and not isinstance(child, SINGLE)
            ):
                yield child

    return parts(model)
