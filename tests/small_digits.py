"""A few digits of every style for tests. Without scikit-learn, as on many GPU machines, the scans are random patterns."""

from __future__ import annotations

import numpy as np
import pytest

from efdm.data import digits
from efdm.data.domains import DomainSet


def small_digits(per_domain: int = 60) -> DomainSet:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(digits, "_scans", _random_scans)
            return digits.load_digits_domains(per_domain=per_domain)
    return digits.load_digits_domains(per_domain=per_domain)


def _random_scans() -> tuple[np.ndarray, np.ndarray]:
    """Return as many scans as the real ones, made of ten patterns with noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(1797) % 10
    patterns = (rng.random((10, 8, 8)) < 0.35).astype(np.float32)
    return np.clip(patterns[labels] + 0.1 * rng.standard_normal((1797, 8, 8)), 0, 1).astype(np.float32), labels
