"""Learning-rate schedules: the factor of the learning rate at an iteration out of a total."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

Schedule = Literal["constant", "cosine", "warmup-cosine", "inverse-time", "authors", "thirds"]
WARM_UP = 500  # iterations


def _cosine(done: float, total: float) -> float:
    return 0.5 + 0.5 * math.cos(math.pi * done / total)


SCHEDULES: Mapping[Schedule, Callable[[int, int], float]] = {
    "constant": lambda i, total: 1.0,
    "cosine": _cosine,
    "warmup-cosine": lambda i, total: min(1.0, (i + 1) / WARM_UP) * _cosine(i, total),
    # style transfer, authors' code: independent of the length of the run
    "inverse-time": lambda i, total: 1 / (1 + 5e-5 * i),
    # domain generalization with domain labels, authors' code: a cosine over 150 epochs that stops after about 79, because
    # the epochs of the sampler vary in length. The 79 steps are spread evenly here.
    "authors": lambda i, total: _cosine(79 * i // total, 150),
    # re-identification, authors' code: a tenth after 20 and after 40 of 60 epochs
    "thirds": lambda i, total: 0.1 ** (3 * i // total),
}  # fmt: skip
