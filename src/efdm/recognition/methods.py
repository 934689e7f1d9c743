"""Names and options of the methods of a task. Each task has its own table of methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

from efdm.nn import Pairing
from efdm.ops.choices import check_choice

# names used in the papers and in `MATCHERS`; records contain only the names of rows
OTHER_NAMES: Mapping[str, str] = MappingProxyType({
    "adain": "mixstyle", "efdm": "efdmix", "efdmix-fast": "efdmix", "histogram-matching": "hm",
    "baseline": "erm", "vanilla": "erm", "deepall": "erm",
})  # fmt: skip

# pairing -> smallest and largest number of domains in a batch; "halves": each half of a batch is one domain
DOMAINS: Mapping[Pairing, tuple[int, float]] = MappingProxyType({
    "random": (1, inf), "crossdomain": (2, inf), "halves": (2, 2),
})  # fmt: skip


class Row(Protocol):
    """The attributes that the rows of every table of methods share."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def min_batch(self) -> int: ...


def check_method(argument: str, value: str, rows: Collection[str]) -> None:
    """Raise a ValueError unless ``value`` is one of ``rows``. The message suggests the row for a known synonym."""
    spelled = value.lower().replace("_", "-").replace(" ", "-")
    here = OTHER_NAMES.get(spelled, spelled)
    if value not in rows and here in rows:
        raise ValueError(f"{argument}={value!r} is called {here!r} here")
    check_choice(argument, value, rows)


def options_of(method: str, given: Mapping[str, Any], rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return all options of a method: the given values, and defaults for the others."""
    check_method("method", method, rows)
    options = rows[method].options
    for name in given:
        if name not in options:
            takes = f"its options are {', '.join(options)}" if options else "it has no options"
            raise TypeError(f"method {method!r} has no option {name!r}; {takes}")
    return {**options, **given}
