"""The training step of a classifier: select images, augment, forward, loss. The whole step runs on the device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.dg.augment import augment_batch
from efdm.dg.methods import attach
from efdm.dg.settings import Settings
from efdm.models import classifier_of, embedding
from efdm.recognition.step import fast_forwards, forward_mode, own_inputs, start_training, step_of
from efdm.training.distributed import gather_rows
from efdm.training.step import Step


def make_step(model: nn.Module, data: DomainSet, settings: Settings) -> Step:
    """Insert the method into ``model`` and return the step that trains it on ``data``, given indices of images.

    The data must be on the device of the settings; the model is moved there. Streamed images are a second input of the step.
    """
    device = torch.device(settings.device)
    model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = torch.Generator(device)
    method = attach(settings.method, model, settings.stages, generator=generator, **settings.options)
    one_hot = torch.eye(len(data.classes), device=device)[data.labels]
    forwards = fast_forwards(model, settings, [] if method.penalty is None else [classifier_of(model)])
    start_training(model, settings)

    def losses(indices: Tensor, streamed: Tensor | None = None) -> dict[str, Tensor]:
        images = data.images[indices] if streamed is None else streamed
        images = augment_batch(images, settings.augmentation, settings.size, generator)
        images, targets = method.change(images, one_hot[indices])
        inputs, domains = own_inputs(images, settings), data.domains[indices]
        with forward_mode(settings, domains, forwards):
            features, logits = (None, model(inputs)) if method.penalty is None else embedding(model, inputs)
        logits = gather_rows(logits).float()
        loss = F.cross_entropy(logits, targets)
        if features is not None and method.penalty is not None:
            loss = loss + method.penalty(gather_rows(features).float(), logits, targets, domains)
        return {"loss": loss}

    return step_of(losses, model, settings, generator)
