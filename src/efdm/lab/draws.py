"""Random hyperparameters, drawn from DomainBed's distributions for photos (its ``hparams_registry.py``).

DomainBed also draws the dropout before the classifier from 0, 0.1 and 0.5; our networks have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from efdm.lab.protocols import Cell


class Power(NamedTuple):
    """The distribution of ``base ** u`` with u uniform between ``low`` and ``high``."""

    base: int
    low: float
    high: float

    def __call__(self, key: str) -> float:
        """Return the value for ``key``, rounded to three digits."""
        return float(f"{self.base ** Random(key).uniform(self.low, self.high):.3g}")


LR, WEIGHT_DECAY, DOMAIN_BATCH = Power(10, -5, -3.5), Power(10, -6, -2), Power(2, 3, 5.5)  # pictures of a domain in a batch
OPTIONS: Mapping[str, Mapping[str, Power]] = {
    "coral": {"gamma": Power(10, -1, 1)}, "mixup": {"alpha": Power(10, -1, 1)},
}  # fmt: skip
DRAWN = ("lr", "weight_decay", "batch")


def drawn(draw: int, seed: int, method: str, cell: Cell) -> dict[str, Any]:
    """Return the settings of a draw. Draw 0 has none, so it keeps the defaults, as in DomainBed.

    Every seed has its own draws, which all methods and test domains share.
    """
    if not draw:
        return {}
    key = f"{draw}/{seed}"
    settings: dict[str, Any] = {
        "lr": LR(f"{key}/lr"),
        "weight_decay": WEIGHT_DECAY(f"{key}/weight_decay"),
        "batch": int(DOMAIN_BATCH(f"{key}/batch")) * len(cell.train),
    }
    if options := OPTIONS.get(method):
        settings["options"] = {name: distribution(f"{key}/{name}") for name, distribution in options.items()}
    return settings
