"""The training step: select pictures, augment, forward, losses. The whole step runs on the device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from efdm.models import classifier_of, embedding
from efdm.nn import mix_after
from efdm.recognition.step import fast_forwards, forward_mode, own_inputs, start_training, step_of
from efdm.reid.augment import augment_batch
from efdm.reid.losses import batch_hard_triplet
from efdm.reid.sets import TrainingPictures
from efdm.reid.settings import METHODS, Settings
from efdm.training.distributed import gather_rows
from efdm.training.step import Step


def make_step(model: nn.Module, data: TrainingPictures, settings: Settings) -> Step:
    """Insert the method into ``model`` and return the step that trains it on ``data``, given indices of pictures.

    The data must be on the device of the settings; the model is moved there.
    """
    device = torch.device(settings.device)
    model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = torch.Generator(device)
    layers = METHODS[settings.method].make(len(settings.stages), generator, **settings.options).layers
    if layers is not None:
        mix_after(model, settings.stages, layers)
    forwards = fast_forwards(model, settings, [classifier_of(model)] if settings.triplet_weight else [])
    start_training(model, settings)

    def losses(indices: Tensor) -> dict[str, Tensor]:
        images = augment_batch(data.images[indices], settings.augmentation, settings.size, generator)
        inputs, people = own_inputs(images, settings), data.people[indices]
        with forward_mode(settings, data.domains[indices], forwards):
            features, logits = embedding(model, inputs) if settings.triplet_weight else (None, model(inputs))
        softmax = F.cross_entropy(gather_rows(logits).float(), people, label_smoothing=settings.label_smoothing)
        if features is None:
            return {"loss": softmax}
        triplet = batch_hard_triplet(gather_rows(features).float(), people, settings.triplet_margin)
        return {"loss": softmax + settings.triplet_weight * triplet, "softmax": softmax, "triplet": triplet}

    return step_of(losses, model, settings, generator)


def scale_gradients(module: nn.Module, factor: float, weight_decay: float) -> list[RemovableHandle]:
    """Multiply the learning rate of the parameters of a module by ``factor``, for SGD. Removing the handles undoes it.

    All parameters of a `Step` share one learning rate, so hooks scale the gradients instead. SGD adds
    ``weight_decay * weights`` to a gradient, so that part is scaled as well.
    """

    def scale(weights: Tensor) -> RemovableHandle:
        more = (factor - 1) * weight_decay
        return weights.register_hook(lambda gradient: factor * gradient + more * weights.detach())

    return [scale(weights) for weights in module.parameters()] if factor != 1 else []
