"""Statistics that several packages share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean, or NaN for a single value.

    >>> standard_error([1.0, 3.0])
    1.0
    """
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
