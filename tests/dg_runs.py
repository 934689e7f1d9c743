"""Settings and data of small classifier runs for tests."""

import dataclasses
from typing import Any

from efdm.data.digits import load_digits_domains
from efdm.data.domains import DomainSet
from efdm.dg.settings import Settings


def settings(**changes: Any) -> Settings:
    plain = Settings(
        "digits", ("ink", "neon", "mosaic"), ("outline",), backbone="tiny", size=32, augmentation="digits", batch=16,
        iterations=6, lr=0.05, precision="fp32", speed="plain", device="cpu", log_every=1, evaluate_every=3, save_every=2,
    )  # fmt: skip
    plain = dataclasses.replace(plain, **changes)
    return dataclasses.replace(plain, batches="domains") if "labels" in plain.method else plain


def small_digits(per_domain: int = 60) -> DomainSet:
    return load_digits_domains(per_domain=per_domain)
