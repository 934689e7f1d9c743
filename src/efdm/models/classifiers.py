"""Features before the classifier of any network."""

from __future__ import annotations

from torch import Tensor, nn

from efdm.errors import SettingError


def embedding(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pooled features ``(b, d)`` that enter the classifier, and the logits ``(b, classes)``.

    The forward pass is that of ``model(images)``, with its hooks, mixed features and gradients. A hook on the classifier
    reads its input, so the classifier must not be part of a compiled module.
    """
    pooled: list[Tensor] = []
    handle = classifier_of(model).register_forward_pre_hook(lambda _, inputs: pooled.append(inputs[0]))
    try:
        logits = model(images)
    finally:
        handle.remove()
    return pooled[0].flatten(1), logits


def embedding_width(model: nn.Module) -> int:
    """Return the number of features ``d`` of `embedding`."""
    weight: Tensor = classifier_of(model).weight  # type: ignore[assignment]
    return weight.shape[1]


def classifier_of(model: nn.Module) -> nn.Module:
    """Return the linear layer or 1x1 convolution that computes the logits, the last one of timm's ``get_classifier()``.

    Raises SettingError if the model has several classifiers, as distilled models have.
    """
    head = model.get_classifier() if hasattr(model, "get_classifier") else model  # type: ignore[operator]
    if isinstance(head, tuple | nn.ModuleList):
        raise SettingError(f"{type(model).__name__} has {len(head)} classifiers; choose a model with one", "backbone")
    layers = [module for module in head.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return layers[-1] if layers else head
