"""Methods, and the table of those that only insert layers. Each task has its own table.

A method consists of layers after the stages of a model, a change of its batches, a penalty added to the loss, or several of
these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from efdm.nn import LAYERS, FeatureLayer, LayerRow, Pairing
from efdm.ops.choices import check_choice

Sampler = Literal["uniform", "domains"]
Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of images and targets
Penalty = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of features, logits, targets and domains

# pairing -> smallest and largest number of domains in a batch; "halves": each half of a batch is one domain
DOMAINS: Mapping[Pairing, tuple[int, float]] = {
    "random": (1, inf), "crossdomain": (2, inf), "halves": (2, 2),
}  # fmt: skip


def unchanged(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the batch itself."""
    return images, targets


class Parts(NamedTuple):
    """The parts of a method: layers after the stages (one for all or one for each), a change of batches, a penalty.

    The penalty is called as ``penalty(features, logits, targets, domains)``, see `efdm.dg.penalties`, and added to the loss.
    """

    layers: FeatureLayer | Sequence[FeatureLayer] | None = None
    change: Change = unchanged
    penalty: Penalty | None = None


@dataclass(frozen=True)
class Method:
    """A row of a table of methods. ``make`` is called with the number of stages, the generator and all options."""

    name: str
    about: str
    source: str
    make: Callable[..., Parts] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)  # all, with their defaults
    min_batch: int = 1  # the smallest batch in which the method has an effect
    domains: tuple[int, float] = (1, inf)  # smallest and largest number in a batch of the sampler "domains"

    @property
    def batches(self) -> Sampler:
        """The default sampler: "domains" draws equal parts of several domains."""
        return "uniform" if self.domains[0] == 1 else "domains"

    def inserts_layers(self) -> bool:
        """Return True if the method inserts layers after stages."""
        return self.make(1, None, **self.options).layers is not None


def _from_layer(row: LayerRow) -> Method:
    def make(stages: int, generator: torch.Generator | None, **options: Any) -> Parts:
        return Parts(row.make(generator=generator, **options))

    return Method(row.name, row.about, row.source, make, row.options, row.min_batch, DOMAINS[row.pairing])


ERM = Method("erm", "empirical risk minimization, the baseline", "Vapnik, 1998", lambda stages, generator: Parts())
LAYER_METHODS: Mapping[str, Method] = {
    "erm": ERM, **{name: _from_layer(row) for name, row in LAYERS.items()},
}  # fmt: skip


def options_of(method: str, changes: Mapping[str, Any], rows: Mapping[str, Method]) -> dict[str, Any]:
    """Return all options of a method: its defaults, overridden by ``changes``."""
    check_choice("method", method, rows)
    defaults = rows[method].options
    for name in changes:
        if name not in defaults:
            known = f"its options are {', '.join(defaults)}" if defaults else "it has no options"
            raise TypeError(f"method {method!r} has no option {name!r}; {known}")
    return {**defaults, **changes}
