"""The training loop and its parts, independent of what is trained. Start reading at `efdm.training.fit`."""

from efdm.training.capture import SPEEDS, Capture, Speed
from efdm.training.device import PRECISIONS, Precision, autocast, weights_dtype

__all__ = ["PRECISIONS", "SPEEDS", "Capture", "Precision", "Speed", "autocast", "weights_dtype"]
