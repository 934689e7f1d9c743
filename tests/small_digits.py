"""A few digits of every style for tests."""

from __future__ import annotations

from efdm.data.digits import load_digits_domains
from efdm.data.domains import DomainSet


def small_digits(per_domain: int = 60) -> DomainSet:
    return load_digits_domains(per_domain=per_domain)
