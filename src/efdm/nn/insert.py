"""Insert feature layers into any model without changing its code, parameters or checkpoint keys."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from efdm.nn.domains import begin_call, end_call, evaluate_while_tracing, is_compiled_stage, reach_stage
from efdm.nn.layer import FeatureLayer
from efdm.nn.mix import EFDMix
from efdm.nn.stages import Stage, find_stage

Model = TypeVar("Model", bound=nn.Module)
DEFAULT_STAGES = ("stage1", "stage2", "stage3")  # paper: ResNet-18, after the first three stages


class _Hook:
    """Base class of the hooks, which are objects rather than closures so that models can be pickled and copied."""

    attached = True  # until `unmix`
    handle: RemovableHandle | None = None  # pickled with the model, because unpickling reserves the id of the hook

    @property
    def __name__(self) -> str:  # read only by torch.jit.script
        raise AttributeError("torch.jit.script cannot compile mixing layers; call unmix(model) before scripting")


class _MixOutput(_Hook):
    """Forward hook of a stage that mixes its output."""

    def __init__(self, mix: FeatureLayer, stage: Stage, model: str) -> None:
        layout = mix.layout(stage.layout)  # raises for a prefix without tokens
        self.mix, self.stage = mix, stage.name
        self.key = f"{model}.{stage.name}"  # equal for models of one class, so that these share compiled code
        # None leaves an unknown layout to the layer, which warns about features that may be tokens
        self.layout = layout if stage.layout_known or mix.channel_dim is not None else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _guard_hooks_when_compiling()

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        reach_stage(self.key)
        # the layer is not a child of the model, so model.eval() does not reach it: the mode of the stage decides
        if not (module.training and self.mix.active):
            return output
        if not isinstance(output, Tensor):
            raise TypeError(_not_a_tensor(self.stage, output))
        return self.mix(output, layout=self.layout)


def _hooked_module(model: nn.Module, stage: Stage) -> nn.Module:
    """Return the stage, or the last block of a Sequential stage if the model has timm's ``grad_checkpointing``.

    With checkpointing on, timm's models call the blocks and never the stage itself.
    """
    parents, module = stage.name.split(".")[:-1], stage.module
    around = (model.get_submodule(".".join(parents[:i])) for i in range(len(parents) + 1))
    if any(hasattr(parent, "grad_checkpointing") for parent in around):
        # a subclass with its own forward, such as a residual connection, may return more than its last block
        while isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward and len(module):
            module = module[-1]
    return module


def _not_a_tensor(stage: str, output: object) -> str:
    if type(output).__module__.startswith("torch.fx"):
        return (
            f"torch.fx cannot trace the mixing layer after stage {stage!r}; for a traced model that does not mix, as in "
            "create_feature_extractor, trace inside `with active(model, False):` or after unmix(model)"
        )
    return f"stage {stage!r} returns {type(output).__name__}, expected a tensor; mix after a module inside the stage"


class _BeginCall(_Hook):
    """Forward pre-hook of the model that accepts ``model(images, domains=labels)``."""

    def __init__(self, model: nn.Module) -> None:
        self.hooks: list[_MixOutput] = []
        self.forwards_domains = "domains" in inspect.signature(model.forward).parameters

    def __call__(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        begin_call(kwargs.get("domains"))
        return args, {k: v for k, v in kwargs.items() if k != "domains" or self.forwards_domains}


class _EndCall(_Hook):
    """Forward hook of the model that restores the domain labels, and raises if a training call did not mix."""

    def __init__(self, hooks: list[_MixOutput]) -> None:
        self.hooks = hooks

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        reached = end_call()
        if output is None or not module.training:  # the output is None after an exception
            return
        hooks = [hook for hook in self.hooks if hook.attached]
        missing = [hook for hook in hooks if hook.key not in reached and not is_compiled_stage(hook.key)]
        if missing and (len(missing) == len(hooks) or not torch.compiler.is_compiling()):
            _explain_missing(module, missing, reached)


def _explain_missing(model: nn.Module, missing: list[_MixOutput], reached: list[str]) -> None:
    name, stages = type(model).__name__, ", ".join(repr(hook.stage) for hook in missing)
    if not torch.compiler.is_compiling():
        present = {id(hook) for module in model.modules() for hook in module._forward_hooks.values()}
        if replaced := [repr(hook.stage) for hook in missing if id(hook) not in present]:
            raise RuntimeError(
                f"{name} is no longer mixed after {', '.join(replaced)} because these modules were replaced, for example by "
                "convert_sync_batchnorm; call unmix(model), and mix_after(model, ...) after the replacement"
            )
    if not reached:
        raise RuntimeError(
            f"a training forward of {name} called none of its mixed stages ({stages}); mix after modules that forward calls"
        )
    warnings.warn(f"a training forward of {name} did not call {stages}, so nothing was mixed there", stacklevel=3)


def mix_after(
    model: Model, stages: Sequence[str] | str = DEFAULT_STAGES, mix: FeatureLayer | Sequence[FeatureLayer] | None = None
) -> Model:
    """Mix features after the named stages in training mode, and return the same model.

    The layer draws separately at every stage. Parameters, buffers and checkpoint keys do not change; `unmix` removes the
    layers. Pass domain labels with ``model(images, domains=labels)`` or `domains_of_batch`. Call `mix_after` before
    ``torch.compile`` and ``DistributedDataParallel``.

    Args:
        model: any module. The feature layouts of known families (NHWC, tokens, class token) are set automatically.
        stages: ``"stage1"``, ``"stage2"``... for a known family (see `stages_of`), or module names of any model.
        mix: a feature layer such as `EFDMix` (the default), `MixStyle` or `DSU`, or a sequence with one layer per stage.
            ``channel_dim`` and ``prefix`` of a layer override the layout of the family.

    >>> import torch
    >>> from efdm import EFDMix, mix_after
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    >>> model = mix_after(model, stages=["1"], mix=EFDMix(p=0.5, alpha=0.1))
    >>> model(torch.rand(4, 3, 16, 16)).shape
    torch.Size([4, 4, 12, 12])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(stages, nn.Module | int):
        raise TypeError(f"stages must be names, got {type(stages).__name__}; pass names such as 'stage1', layers as mix=")
    if hasattr(model, "_orig_mod") or isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        wrapper = type(model).__name__
        raise ValueError(f"model is already wrapped in {wrapper}; call mix_after before compiling or parallelizing it")
    names = [stages] if isinstance(stages, str) else [str(stage) for stage in stages]
    if not names:
        raise ValueError("stages is empty; name at least one stage, for example 'stage1'")
    mix = EFDMix() if mix is None else mix
    layers = list(mix) if isinstance(mix, Sequence) else [mix] * len(names)
    for layer in layers:
        if not isinstance(layer, FeatureLayer):
            raise TypeError(f"mix must be a FeatureLayer such as EFDMix() or DSU(), got {type(layer).__name__}")
    if len(layers) != len(names):
        raise ValueError(f"got {len(layers)} layers for {len(names)} stages; pass one layer per stage, or one for all")
    found = [find_stage(model, name) for name in names]
    chosen = {stage.name: (stage, layer) for stage, layer in zip(found, layers, strict=True)}  # drops repeated names
    begin = next((h for h in model._forward_pre_hooks.values() if isinstance(h, _BeginCall)), None) or _BeginCall(model)
    mixed = [hook.stage for hook in begin.hooks]
    modules = [_hooked_module(model, stage) for stage, _ in chosen.values()]
    for name, module in zip(chosen, modules, strict=True):
        if modules.count(module) > 1:
            same = ", ".join(other for other, m in zip(chosen, modules, strict=True) if m is module)
            raise ValueError(f"stages {same} have the same output; name one of them")
        if name in mixed or any(isinstance(hook, _MixOutput) for hook in module._forward_hooks.values()):
            raise ValueError(f"stage {name!r} is already mixed; call unmix(model) first")
    hooks = [_MixOutput(layer, stage, type(model).__name__) for stage, layer in chosen.values()]
    _guard_hooks_when_compiling()
    for hook, module in zip(hooks, modules, strict=True):
        hook.handle = module.register_forward_hook(hook)
    if begin.handle is None:
        begin.handle = model.register_forward_pre_hook(begin, with_kwargs=True)
        end = _EndCall(begin.hooks)
        end.handle = model.register_forward_hook(end, with_kwargs=True, always_call=True)
    begin.hooks.extend(hooks)
    return model


def _guard_hooks_when_compiling() -> None:
    """Make torch.compile guard on module hooks.

    By default a mixed model would run code compiled earlier for an unmixed model of the same class, without mixing.
    """
    import torch._dynamo  # imported late because it takes a second

    evaluate_while_tracing()
    if torch._dynamo.config.skip_nnmodule_hook_guards:  # type: ignore[attr-defined]
        torch._dynamo.config.skip_nnmodule_hook_guards = False  # type: ignore[attr-defined]
        torch._dynamo.reset()  # drops code compiled without these guards


def unmix(model: Model) -> Model:
    """Remove everything that `mix_after` inserted, and return the same model."""
    for module in model.modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            if isinstance(hook, _Hook) and hook.handle is not None:
                hook.attached = False
                hook.handle.remove()
    return model


def feature_layers(model: nn.Module) -> list[FeatureLayer]:
    """Return every feature layer of a model: those inserted by `mix_after` and those that are submodules."""
    found = [m for m in model.modules() if isinstance(m, FeatureLayer)]
    for module in model.modules():
        found += [h.mix for h in module._forward_hooks.values() if isinstance(h, _MixOutput)]
    return list(dict.fromkeys(found))


def set_active(model: Model, active: bool = True) -> Model:
    """Switch every feature layer of a model on or off, and return the same model.

    Active layers still change features in training mode only.

    >>> from torch import nn
    >>> from efdm import EFDMix, set_active
    >>> set_active(nn.Sequential(nn.Conv2d(3, 8, 3), EFDMix()), False)[1]
    EFDMix(method='efdm', p=0.5, alpha=0.1, pairing='random', style_grad='flow', active=False)
    """
    for layer in feature_layers(model):
        layer.active = active
    return model


@contextmanager
def active(model: Model, active: bool = True) -> Iterator[Model]:
    """Switch every feature layer of a model on or off inside a ``with`` block, and restore each layer afterwards.

    >>> import torch
    >>> from efdm import EFDMix, active
    >>> layer, features = EFDMix(p=1.0), torch.rand(4, 8, 7, 7)
    >>> with active(layer, False):
    ...     print(layer(features) is features)
    True
    """
    before = {layer: layer.active for layer in feature_layers(model)}
    try:
        yield set_active(model, active)
    finally:
        for layer, was_active in before.items():
            layer.active = was_active
