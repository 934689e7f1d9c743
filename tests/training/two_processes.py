"""Worker of test_distributed.py: train in one process and in two over gloo, and print the largest differences of weights."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn

Weights = dict[str, Tensor]
COMMON: dict[str, Any] = {"iterations": 20, "evaluate_every": 0, "save_every": 0, "log_every": 20, "precision": "fp64"}


def classifier(place: Path, **changes: Any) -> Weights:
    from dg_runs import settings, small_digits

    from efdm.dg import train

    return train(settings(**COMMON, batch=8, **changes), small_digits(20), place).model.state_dict()


def embedder(place: Path, **changes: Any) -> Weights:
    from reid_runs import seen_by_cameras, settings

    from efdm.reid import train

    return train(settings(**COMMON, batch=8, **changes), {"seen": seen_by_cameras(6, 4)}, place).model.state_dict()


def stylizer(place: Path, **changes: Any) -> Weights:
    from style_runs import small
    from training import slim_vgg

    from efdm.style import objective, training

    common = {**{name: value for name, value in COMMON.items() if name != "evaluate_every"}, "batch": 4, "preview_every": 0}
    settings = small(place.parents[1], **{**common, **changes})
    teacher = slim_vgg(until="relu4_3")
    loaded = mock.patch.object(objective, "load_encoder", return_value=teacher)
    with loaded, mock.patch.object(training, "SLICED_CHANNELS", (8, 8)):
        return training.train(settings, place).state_dict()


def dropout(place: Path) -> Weights:
    from efdm.training.distributed import WholeBatch, gather_rows, own_rows

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 2)).double()
    images = torch.randn(6, 3, 6, 6, dtype=torch.float64)
    with WholeBatch() if dist.is_initialized() else nullcontext():
        outputs = gather_rows(net(own_rows(images)))
    outputs.square().mean().backward()
    gradients = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    for gradient in gradients.values() if dist.is_initialized() else ():
        dist.all_reduce(gradient)
        gradient /= 2
    return {**net.state_dict(), **gradients, "outputs": outputs.detach()}


def cases() -> dict[str, Callable[[Path], Weights]]:
    def case(make: Callable[..., Weights], **changes: Any) -> Callable[[Path], Weights]:
        return lambda place: make(place, **changes)

    always = {"options": {"p": 1.0}}
    return {
        "batch norm and dropout": dropout,
        "dg: distributions mixed across domains, with gradient": case(classifier, method="efdmix-labels-flow", **always),
        "dg: statistics of the whole batch": case(classifier, method="dsu", **always),
        "dg: batches changed": case(classifier, method="manifold-mixup"),
        "dg: penalty on the whole batch": case(classifier, method="coral", batches="domains"),
        "reid: hardest triplets of the batch": case(
            embedder, method="efdmix", batches="people", triplet_weight=1.0, **always
        ),
        "style": case(stylizer, reconstruct=0),
        "style: reconstruction in units of the batch's spread": case(stylizer, reconstruct=20, iterations=1),
    }  # fmt: skip


def main(place: Path) -> None:
    torch.set_num_threads(1)
    sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]
    child = os.fork()  # before any computation; a second interpreter would import torch again
    one = {name: run(place / "one" / name) for name, run in cases().items()} if child else {}
    options: dict[str, Any] = {"init_method": f"file://{place / 'store'}", "rank": 0 if child else 1, "world_size": 2}
    dist.init_process_group("gloo", **options)
    two = {name: run(place / "two" / name) for name, run in cases().items()}
    gc.collect()  # gloo on CPU sometimes aborts at exit while objects that used it are alive
    dist.destroy_process_group()
    if child:
        assert os.waitpid(child, 0)[1] == 0, "the second process failed"
        pairs = {name: [(two[name][key], value) for key, value in weights.items()] for name, weights in one.items()}
        found = {name: max(float((a - b).abs().max()) for a, b in both) for name, both in pairs.items()}
        print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
