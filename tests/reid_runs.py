"""Small re-identification runs for tests: a set in which people are hard to recognize without training, and settings."""

import dataclasses
from typing import Any

import numpy as np
from people import person_set

from efdm.data.people import PersonSet
from efdm.reid.settings import Settings

SIZE = (32, 16)


def seen_by_cameras(people: int = 20, cameras: int = 6, *, name: str = "seen", seed: int = 0) -> PersonSet:
    """Return two pictures of each person by each camera, and by two more cameras for queries and gallery.

    A person is a pattern of dark and light blocks. A camera has its own colours, which differ more than people do.
    """
    rng = np.random.default_rng(seed)
    shown = [(p, c, s) for p in range(people) for c in range(cameras + 2) for s in range(2)]
    patterns, (gain, tint) = rng.standard_normal((people, 1, 8, 4)), rng.uniform(0.1, 0.5, (2, cameras + 2, 3, 1, 1))
    blocks = [0.1 + tint[c] + gain[c] * patterns[p] + 0.05 * rng.standard_normal((3, 8, 4)) for p, c, _ in shown]
    images = np.stack(blocks).clip(0, 1).repeat(SIZE[0] // 8, 2).repeat(SIZE[1] // 4, 3)
    return person_set(name, shown, (images * 255).astype(np.uint8), [camera < cameras for _, camera, _ in shown])


def settings(**changes: Any) -> Settings:
    plain = Settings(
        "seen", ("seen",), ("seen",), backbone="tiny", stages=("stage1", "stage2"), size=SIZE, batch=16, iterations=6,
        lr=0.1, precision="fp32", speed="plain", device="cpu", log_every=1, evaluate_every=3, save_every=2,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)
