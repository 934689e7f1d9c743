"""What every training needs, whatever it trains: recorded steps, compiled parts, checkpoints, logs, settings, signals."""

from efdm.training.capture import SPEEDS, Capture
from efdm.training.precision import PRECISIONS, autocast

__all__ = ["PRECISIONS", "SPEEDS", "Capture", "autocast"]
