"""Put a feature layer into any model without touching its code, its parameters or its checkpoint keys."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from efdm.nn.domains import call_begins, call_ends
from efdm.nn.layer import FeatureLayer
from efdm.nn.mix import EFDMix
from efdm.nn.stages import family_of

Model = TypeVar("Model", bound=nn.Module)
DEFAULT_STAGES = ("stage1", "stage2", "stage3")  # paper: ResNet-18 after its first three


class _MixOutput:
    """A forward hook that mixes a stage's output. A class, so that the model can be pickled and copied."""

    def __init__(self, mix: FeatureLayer, stage: str, layout: tuple[int, int] | None) -> None:
        self.mix, self.stage, self.layout = mix, stage, layout
        self.handle: RemovableHandle | None = None  # kept because unpickling it reserves the hook's number

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _let_compilers_see_hooks()  # nobody calls `mix_after` for a model that is loaded

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        # the layer is no child of the model, so model.eval() does not reach it: the stage's own mode decides
        if not module.training:
            return output
        if not isinstance(output, Tensor):
            raise TypeError(
                f"stage {self.stage!r} returns {type(output).__name__}, not a tensor; mix after a module inside it"
            )
        return self.mix(output, layout=self.layout)


class _TakeDomains:
    """A forward pre-hook: ``model(images, domains=labels)`` works, whatever the model's forward accepts."""

    def __init__(self, model: nn.Module) -> None:
        self.wanted = "domains" in inspect.signature(model.forward).parameters  # the model wants to see them, too
        self.handle: RemovableHandle | None = None

    def __call__(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        call_begins(kwargs.get("domains"))
        return args, {k: v for k, v in kwargs.items() if k != "domains" or self.wanted}


class _RestoreDomains:
    """Its counterpart after the call, also when the call fails."""

    def __init__(self) -> None:
        self.handle: RemovableHandle | None = None

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call_ends()


_HOOKS = (_MixOutput, _TakeDomains, _RestoreDomains)


def stages_of(model: nn.Module) -> dict[str, str]:
    """The stages of a known family: ``{"stage1": module name, ...}``, shallow to deep; empty for other models.

    >>> from torch import nn
    >>> from efdm.nn import stages_of
    >>> stages_of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    {}
    """
    family = family_of(model)
    return {} if family is None else {f"stage{i}": name for i, name in enumerate(family.stages(model), 1)}


class Stage(NamedTuple):
    """A module of a model, and where the channels of its features are."""

    name: str
    module: nn.Module
    layout: tuple[int, int]  # channel_dim, and how many leading tokens are no place


def find_stage(model: nn.Module, stage: str) -> Stage:
    """The stage of a known family (``"stage1"``), or any module by its name.

    The layout (NHWC, tokens, class token) is known for the stages of known families; otherwise channels are dimension 1.

    >>> from torch import nn
    >>> from efdm.nn import find_stage
    >>> find_stage(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), "1")
    Stage(name='1', module=ReLU(), layout=(1, 0))
    """
    known, family = stages_of(model), family_of(model)
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    name = known.get(stage, stage)
    if name in modules:
        layout = (family.channel_dim, family.prefix(model)) if family and name in known.values() else (1, 0)
        return Stage(name, modules[name], layout)
    from efdm.text import suggest  # late: only those need it who misspell

    close = suggest(stage, [*known, *modules], 3)
    hint = f" Did you mean {close}?" if close else ""
    presets = ", ".join(f"{s} ({m})" for s, m in known.items())
    children = ", ".join(name for name, _ in model.named_children())
    listed = f"stages of this {type(model).__name__}: {presets}" if known else f"its top-level modules: {children}"
    raise ValueError(f"{type(model).__name__} has no stage {stage!r}.{hint} Choose from {listed}; any module name works.")


def mix_after(
    model: Model,
    stages: Sequence[str] | str = DEFAULT_STAGES,
    mix: FeatureLayer | Sequence[FeatureLayer] | None = None,
) -> Model:
    """Mix features after the named stages, in training. Returns the same model.

    ``mix`` is an `EFDMix` by default, or another layer of ours: `MixStyle`, `DSU`, `DropBlock`...; several are one a stage.

    ``stages`` are ``"stage1"``, ``"stage2"``... for a known family (see `stages_of`), or module names of any model. The
    layer draws anew at every stage. Parameters, buffers and checkpoint keys stay what they were; `unmix` takes it out.
    Domain labels reach the layer through ``model(images, domains=labels)`` or `domains_of_batch`.

    For the stages of known families the layout of the features (NHWC, tokens, class token) is known, too; a layer with
    settings of its own keeps them. Mix before compiling.

    >>> import torch
    >>> from efdm import EFDMix, mix_after
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    >>> model = mix_after(model, stages=["1"], mix=EFDMix(p=0.5, alpha=0.1))
    >>> model(torch.rand(4, 3, 16, 16)).shape
    torch.Size([4, 4, 12, 12])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise ValueError("this model is compiled already; call mix_after on the model first and torch.compile afterwards")
    names = [stages] if isinstance(stages, str) else [str(stage) for stage in stages]
    if not names:
        raise ValueError("stages is empty; name at least one, for example 'stage1'")
    mix = EFDMix() if mix is None else mix
    layers = list(mix) if isinstance(mix, Sequence) else [mix] * len(names)
    for layer in layers:
        if not isinstance(layer, FeatureLayer):
            raise TypeError(f"mix must be a FeatureLayer such as EFDMix() or DSU(), got {type(layer).__name__}")
    if len(layers) != len(names):
        raise ValueError(f"{len(layers)} layers for {len(names)} stages; give one for each, or one layer for all")
    found = [find_stage(model, name) for name in names]  # all of them, before anything changes
    chosen = {stage.name: (stage, layer) for stage, layer in zip(found, layers, strict=True)}  # a stage named twice is one
    for stage, _ in chosen.values():
        if any(isinstance(h, _MixOutput) for h in stage.module._forward_hooks.values()):
            raise ValueError(f"stage {stage.name!r} is mixed already; call unmix(model) first to start again")
    hooks = [(stage, _MixOutput(layer, stage.name, layer.layout(stage.layout))) for stage, layer in chosen.values()]
    _let_compilers_see_hooks()
    for stage, hook in hooks:
        hook.handle = stage.module.register_forward_hook(hook)
    if not any(isinstance(h, _TakeDomains) for h in model._forward_pre_hooks.values()):
        take, restore = _TakeDomains(model), _RestoreDomains()
        take.handle = model.register_forward_pre_hook(take, with_kwargs=True)
        restore.handle = model.register_forward_hook(restore, with_kwargs=True, always_call=True)
    return model


def _let_compilers_see_hooks() -> None:
    """torch.compile takes a model without hooks and one with them for the same, unless it is told to look.

    Otherwise a mixed model would run the code of a plain one of its class that was compiled before, without mixing.
    """
    import torch._dynamo  # late: it takes a second

    if torch._dynamo.config.skip_nnmodule_hook_guards:  # type: ignore[attr-defined]
        torch._dynamo.config.skip_nnmodule_hook_guards = False  # type: ignore[attr-defined]
        torch._dynamo.reset()  # what was compiled without looking


def unmix(model: Model) -> Model:
    """Take out everything `mix_after` put in. Returns the same model."""
    for module in model.modules():
        for table in ("_forward_hooks", "_forward_pre_hooks"):
            hooks = getattr(module, table)
            for key in [k for k, hook in hooks.items() if isinstance(hook, _HOOKS)]:
                del hooks[key]
                for marks in ("_with_kwargs", "_always_called"):
                    getattr(module, table + marks, {}).pop(key, None)
    return model


def mixes_of(model: nn.Module) -> list[FeatureLayer]:
    """Every feature layer of a model, put in by `mix_after` or part of it."""
    found = [m for m in model.modules() if isinstance(m, FeatureLayer)]
    for module in model.modules():
        found += [h.mix for h in module._forward_hooks.values() if isinstance(h, _MixOutput)]
    return list(dict.fromkeys(found))


def set_active(model: Model, active: bool = True) -> Model:
    """Switch every feature layer of a model on or off and return the model. Active layers change features in training only.

    >>> from torch import nn
    >>> from efdm import EFDMix, set_active
    >>> set_active(nn.Sequential(nn.Conv2d(3, 8, 3), EFDMix()), False)[1]
    EFDMix(method='efdm', p=0.5, alpha=0.1, pairing='random', active=False)
    """
    for layer in mixes_of(model):
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
    before = {layer: layer.active for layer in mixes_of(model)}
    try:
        yield set_active(model, active)
    finally:
        for layer, was_active in before.items():
            layer.active = was_active
