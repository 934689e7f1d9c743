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


def with_error(mean: float, error: float | None, form: str = ".1f") -> str:
    """Return mean and error as text, or the mean alone if the error is None or NaN.

    >>> with_error(1.25, 0.5, "+.2f"), with_error(1.25, math.nan)
    ('+1.25 ± 0.50', '1.2')
    """
    return f"{mean:{form}}" if error is None or math.isnan(error) else f"{mean:{form}} ± {error:{form.lstrip('+')}}"
