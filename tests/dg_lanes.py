"""Train four runs alone, in lanes and from streamed pictures, with deterministic algorithms, and print how they differ.

Run as a program, because cuBLAS reads its setting when CUDA starts: ``python tests/dg_lanes.py cuda``. Prints a JSON object
for each run and mode of training: ``differ`` counts the weights that are not bit for bit those of the run alone.
"""

import dataclasses
import json
import os
import sys
from typing import Any

import torch
from dg_runs import settings, small_digits

from efdm.data.domains import DomainSet, StreamedImages
from efdm.dg.training import Trained, train_together
from efdm.recognition import training
from efdm.recognition.settings import run_label

# mode of training -> lanes, and where pictures are stored; four runs, so that lanes are reused
MODES = {"alone again": (1, "memory"), "2 lanes": (2, "memory"), "3 lanes": (3, "memory"), "streamed": (2, "stream")}


def train(data: DomainSet, device: str, lanes: int) -> dict[str, Trained]:
    """Return the finished runs by label.

    Nothing is logged, saved or evaluated before the end, because waiting for a lane would leave only one lane busy.
    """
    common: dict[str, Any] = {"log_every": 1000, "save_every": 0, "evaluate_every": 0, "batch": 96, "lr": 0.005}
    common |= {"device": device} | ({"speed": "graph", "iterations": 50} if device == "cuda" else {"iterations": 2})
    runs = [settings(method=method, seed=seed, **common) for method in ("erm", "efdmix") for seed in (0, 1)]
    found: list[Trained] = []
    train_together(runs, data, lanes=lanes, finished=found.append)
    return {run_label(trained.settings): trained for trained in found}


def difference(one: Trained, two: Trained) -> dict[str, Any]:
    states = [{k: v.detach().cpu() for k, v in trained.model.state_dict().items()} for trained in (one, two)]
    unequal = {k: (v, states[1][k]) for k, v in states[0].items() if not torch.equal(v, states[1][k])}
    largest = max((float((a.double() - b.double()).abs().max()) for a, b in unequal.values()), default=0.0)
    losses = [trained.records[-1]["loss"] for trained in (one, two)]
    count = sum(int((a != b).sum()) for a, b in unequal.values())
    return {"differ": count, "first": next(iter(unequal), ""), "largest": largest, "losses": losses}


def main(device: str) -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)  # a warning names an operation that has no such algorithm
    sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]
    training.BLOCK = 4  # iterations whose indices are moved together, so that a run has several blocks
    data = small_digits(60)
    stream = StreamedImages(range(len(data)), lambda at: data.images[at], data.images.shape[-1], workers=2)
    alone = train(data, device, 1)
    for mode, (lanes, storage) in MODES.items():
        found = train(data if storage == "memory" else dataclasses.replace(data, images=stream), device, lanes)
        for label, trained in found.items():
            row = {"mode": mode, "run": label, "lanes": trained.records[-1]["lanes"], **difference(alone[label], trained)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
