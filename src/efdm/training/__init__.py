"""The training loop and its parts, independent of what is trained. `efdm.training.fit` is the place to start."""

from efdm.training.capture import SPEEDS, Capture, Speed
from efdm.training.precision import PRECISIONS, Precision, autocast

__all__ = ["PRECISIONS", "SPEEDS", "Capture", "Precision", "Speed", "autocast"]
