"""Features of a trained model, batch by batch: the input of all analyses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.environment import environment
from efdm.errors import SettingError
from efdm.nn import find_stage
from efdm.nn.stages import Stage, eval_mode
from efdm.ops.choices import check_choice
from efdm.recognition.pixels import prepared
from efdm.training import autocast
from efdm.training.files import write_json


def pick(
    data: DomainSet,
    per_domain: int | None = 250,
    *,
    domains: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    split: str = "test",
) -> Tensor:
    """Return indices of up to ``per_domain`` pictures of each domain (None: all), evenly distributed over its classes.

    ``classes`` keeps the pictures of some classes only.
    """
    if per_domain is not None and per_domain < 1:
        raise SettingError(f"per_domain must be >= 1 or None, got {per_domain}", "per_domain")
    for name in classes or ():
        check_choice("classes", name, data.classes)
    is_chosen = torch.tensor([name in (classes or data.classes) for name in data.classes])
    parts = []
    for domain in data.domain_names if domains is None else domains:
        at = data.select(domain, split)
        at = at[is_chosen.to(at.device)[data.labels[at]]]
        count = len(at) if per_domain is None else min(per_domain, len(at))
        parts.append(at[torch.arange(count, device=at.device) * len(at) // max(count, 1)])
    picked = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
    if not len(picked):
        where = f"the split {split!r} of {', '.join(domains or data.domain_names)}"
        raise ValueError(f"no pictures to analyse in {where}; choose other domains or classes")
    return picked


@dataclass(frozen=True, eq=False)
class Sample:
    """A model and the pictures on which its features are analysed.

    ``indices`` selects pictures of ``data``; they are prepared as for testing, at ``size``. ``name`` describes the model,
    and ``settings`` are those of its training.
    """

    model: nn.Module
    data: DomainSet
    indices: Tensor
    size: int
    name: str = ""
    batch: int = 32
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def domains(self) -> list[str]:
        """The domains of the selected pictures; the data set may have others."""
        return [self.data.domain_names[number] for number in self.data.domains[self.indices].unique().tolist()]

    @cached_property
    def classes(self) -> list[str]:
        """The classes of the selected pictures."""
        return [self.data.classes[number] for number in self.data.labels[self.indices].unique().tolist()]

    @cached_property
    def labels(self) -> Tensor:
        """The domain of each picture as an index into `domains`, on the CPU."""
        return self.data.domains[self.indices].unique(return_inverse=True)[1].cpu()

    def save(self, analysis: str, numbers: Mapping[str, Any], out: Path) -> dict[str, Any]:
        """Write the numbers of an analysis to a JSON file in ``out`` that also describes the sample. Return its contents."""
        content = {
            "analysis": analysis,
            "model": self.name or type(self.model).__name__,
            **({"settings": dict(self.settings)} if self.settings else {}),
            "size": self.size,
            "pictures": dict(zip(self.domains, self.labels.bincount().tolist(), strict=True)),
            **({"classes": self.classes} if self.classes != list(self.data.classes) else {}),
            "environment": environment(device_of(self.model)),
            **numbers,
        }
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / f"{analysis}.json", content)
        return content

    def features(self, stages: Sequence[str] | str, precision: str = "fp32") -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Yield the labels of each batch and its features after every stage as ``(b, c, *space)``, without class tokens.

        ``stages`` are named as in `mix_after`. Features are on the model's device, in the dtype of its computation. The
        model runs in eval mode, so nothing is mixed; its mode is restored after every batch.
        """
        places = {stage: find_stage(self.model, stage) for stage in ([stages] if isinstance(stages, str) else stages)}
        for part, labels in zip(self.indices.split(self.batch), self.labels.split(self.batch), strict=True):
            images = prepared(self.data.images[part].to(device_of(self.model)), self.size)
            yield labels, _run(self.model, images, places, precision)


def device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _run(model: nn.Module, images: Tensor, places: Mapping[str, Stage], precision: str) -> dict[str, Tensor]:
    features: dict[str, Tensor] = {}

    def keep(stage: str, _module: Any, _inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or output.ndim < 3:
            what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(f"stage {stage!r} returns {what}, not features (b, c, *space); choose another stage")
        channel_dim, prefix = places[stage].layout
        # cloned, because the next module may work in place
        features[stage] = output[:, prefix:].movedim(channel_dim, 1).clone()

    with ExitStack() as stack, eval_mode(model), torch.no_grad(), autocast(images.device, precision):
        for stage, place in places.items():
            stack.enter_context(place.module.register_forward_hook(partial(keep, stage)))
        model(images)
    if unused := [stage for stage in places if stage not in features]:
        raise ValueError(f"the model does not call {', '.join(unused)} as a module; choose another stage")
    return {stage: features[stage] for stage in places}
