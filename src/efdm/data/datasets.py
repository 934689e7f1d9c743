"""Pictures of domains, by the name of their set."""

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
# all other names are those of folders and zips that lie as domain/class/picture
LOADERS: Mapping[str, Callable[..., DomainSet]] = MappingProxyType({
    DIGITS: lambda _sources, *, size, progress: load_digits_domains(size=size),  # made by code: nothing to read
    PACS: load_pacs,
})  # fmt: skip
# said of PACS where it is not called by its name
UNCHECKED = (
    "these are the domains of PACS, read like any folder: a tenth of each class is held out by our own draw, and a copy "
    "that is not whole goes unnoticed; efdm dg run with a recipe for pacs (in Python load_pacs) checks every picture and "
    "reads the official lists"
)


def load_dataset(
    name: str,
    sources: str | Path | Sequence[str | Path],
    size: int,
    *,
    progress: Report = ignore,
    **options: Any,
) -> DomainSet:
    """The pictures of a set, kept at ``size``; ``options`` are of its loader: lists and splits of PACS, say."""
    data = LOADERS.get(name, load_domains)(sources, size=size, progress=progress, **options)
    unchecked = name not in LOADERS and set(data.domain_names) == set(PICTURES)
    return replace(data, notes=[*data.notes, UNCHECKED]) if unchecked else data
