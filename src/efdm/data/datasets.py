"""Sets of domains by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from efdm.data.digits import load_digits_domains
from efdm.data.domains import DomainSet, load_domains
from efdm.data.pacs import PICTURES, load_pacs
from efdm.progress import Report, ignore

DIGITS, PACS = "digits", "pacs"
# other names stand for folders and zips with the layout domain/class/picture
LOADERS: Mapping[str, Callable[..., DomainSet]] = MappingProxyType({
    DIGITS: lambda _sources, *, size, progress: load_digits_domains(size=size),
    PACS: load_pacs,
})  # fmt: skip
UNCHECKED = (
    "the domains are those of PACS, but they are read like any folder: a tenth of each class is held out at random, and "
    "missing pictures go unnoticed; the dataset name 'pacs' (in Python, load_pacs) reads the official lists and checks "
    "that the copy is complete"
)


def load_dataset(
    name: str,
    sources: str | Path | Sequence[str | Path],
    size: int,
    *,
    progress: Report = ignore,
    **options: Any,
) -> DomainSet:
    """Load a set with pictures of ``size`` pixels. ``options`` are passed to its loader, such as the lists of PACS."""
    data = LOADERS.get(name, load_domains)(sources, size=size, progress=progress, **options)
    unchecked = name not in LOADERS and set(data.domain_names) == set(PICTURES)
    return replace(data, notes=[*data.notes, UNCHECKED]) if unchecked else data
