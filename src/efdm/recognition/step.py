"""The parts of a training step that the tasks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from efdm.errors import SettingError
from efdm.nn import domains_of_batch, feature_layers, find_stage, stages_of
from efdm.recognition.settings import RecognitionSettings
from efdm.recognition.stem import stem_forwards
from efdm.training import autocast, weights_dtype
from efdm.training.compiled import Forward, compiled, replaced_forwards
from efdm.training.distributed import WholeBatch, gather_rows, own_rows, processes
from efdm.training.step import Step

SINGLE = (nn.Conv2d, nn.Linear)  # compiling these alone gains nothing


def start_training(model: nn.Module, settings: RecognitionSettings) -> None:
    """Switch a model, with the layers of its method, to training mode, except for frozen batch norms.

    Raise SettingError for a stage that is a frozen batch norm, because features are mixed in training mode only.
    """
    model.train()
    if settings.batchnorm == "frozen":  # running statistics are kept; scale and shift are trained
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
    layers = feature_layers(model)
    for layer in layers if processes()[1] > 1 else ():  # layers mix samples of the whole batch
        layer.register_forward_pre_hook(lambda _, args: (gather_rows(args[0]), *args[1:]))
        layer.register_forward_hook(lambda _, args, output: own_rows(output))
    stages = settings.stages if layers else ()
    frozen = [name for name in stages if not find_stage(model, name).module.training]
    if frozen:
        message = f"stage {frozen[0]} is a batch norm, which batchnorm='frozen' keeps in eval mode, where nothing is mixed; "
        raise SettingError(f"{message}use the enclosing module as the stage, or batchnorm='train'", ("stages", "batchnorm"))


def own_inputs(images: Tensor, settings: RecognitionSettings) -> Tensor:
    """Return the part of a batch that this process passes to the model, in the dtype of the weights."""
    return own_rows(images).to(weights_dtype(settings.precision))


@contextmanager
def forward_mode(settings: RecognitionSettings, domains: Tensor, forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Run forward passes in this block in the precision of the settings, with domain labels and `fast_forwards`.

    Each process passes `own_inputs` to the model. ``domains`` are the labels of the whole batch. With several processes,
    the ``forwards`` are not used.
    """
    whole: Any = WholeBatch() if processes()[1] > 1 else replaced_forwards(forwards)
    with autocast(domains.device, settings.precision), domains_of_batch(domains), whole:
        yield


def step_of(
    losses: Callable[..., dict[str, Tensor]], model: nn.Module, settings: RecognitionSettings, generator: torch.Generator
) -> Step:
    """Return the step that minimizes ``losses``, which draw from ``generator``."""
    # Dropout draws from the default generator. Lanes on a GPU share that generator, so dropout masks are not repeatable
    # there.
    return Step(
        losses, {"model": model}, device=torch.device(settings.device), optimizer=settings.optimizer, lr=settings.lr,
        momentum=settings.momentum, weight_decay=settings.weight_decay, speed=settings.speed, generator=generator,
        seed=settings.seed,
    )  # fmt: skip


def fast_forwards(
    model: nn.Module, settings: RecognitionSettings, hooked: Iterable[nn.Module] = ()
) -> dict[nn.Module, Forward]:
    """Return the compiled forwards of the largest modules that contain neither the end of a stage nor a hook.

    Single convolutions are not compiled. Max pooling is, because its backward in channels_last format is slow otherwise.
    Layers between stages are never compiled, so all methods share the compiled code. In bfloat16 on a GPU the stem of a
    ResNet has its own kernels. ``hooked`` modules get a hook later. The result is empty unless ``settings.speed``
    includes "compile".
    """
    if "compile" not in settings.speed:
        return {}
    ends = {*hooked, *(model.get_submodule(name) for name in stages_of(model).values())}

    def parts(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            inside = [m for m in child.modules() if m is not child]
            if any(m in ends or m._forward_hooks or m._forward_pre_hooks for m in inside):
                yield from parts(child)
            elif isinstance(child, nn.MaxPool2d) or (list(child.parameters()) and not isinstance(child, SINGLE)):
                yield child

    forwards = dict.fromkeys(parts(model), compiled())
    on_gpu = torch.device(settings.device).type == "cuda"
    return forwards | (stem_forwards(model, ends) if on_gpu and settings.precision == "bf16" else {})
