"""Data sets by name: load them, list their domains and classes without reading a picture, and check names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from efdm.data import digits, pacs
from efdm.data.domains import DomainSet, load_domains
from efdm.data.layouts import find_items
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.text import first_few

DIGITS, PACS = "digits", "pacs"
UNCHECKED = (
    "the domains are those of PACS, but they are read like any folder, with a random split and without a check that the "
    "copy is complete; the dataset name 'pacs' (in Python, load_pacs) reads the official lists"
)


class Listing(NamedTuple):
    """The names of domains and classes, called as in `DomainSet`."""

    domain_names: list[str]
    classes: list[str]


# other names refer to folders and zips with the layout domain/class/picture
LOADERS: Mapping[str, Callable[..., DomainSet]] = MappingProxyType({
    DIGITS: lambda _sources, *, size, progress: digits.load_digits_domains(size=size),
    PACS: pacs.load_pacs,
})  # fmt: skip
LISTINGS: Mapping[str, Listing] = MappingProxyType({
    DIGITS: Listing(list(digits.STYLES), list(digits.CLASSES)),
    PACS: Listing(list(pacs.PICTURES), list(pacs.CLASSES)),
})  # fmt: skip


def load_dataset(
    name: str, sources: str | Path | Sequence[str | Path], size: int, *, progress: Report = ignore, **options: Any
) -> DomainSet:
    """Load a set with pictures of ``size`` pixels. ``options`` are passed to its loader, such as the lists of PACS."""
    data = LOADERS.get(name, load_domains)(sources, size=size, progress=progress, **options)
    unchecked = name not in LOADERS and set(data.domain_names) == set(pacs.PICTURES)
    return replace(data, notes=[*data.notes, UNCHECKED]) if unchecked else data


def list_domains(name: str, sources: Sequence[Path]) -> Listing:
    """Return the domains and classes of a set from the names of its files."""
    if name in LISTINGS:
        return LISTINGS[name]
    items, _ = find_items(list(sources))
    return Listing(sorted({item.domain for item in items}), sorted({item.label for item in items}))


def check_domains(setting: str, names: Sequence[str], data: DomainSet | Listing) -> None:
    """Raise `SettingError` for a name that is not a domain of ``data``."""
    for name in names:
        if name in data.classes and name not in data.domain_names:
            raise SettingError(f"{setting}: {name!r} is a class, not a domain; expected folders domain/class", setting)
        check_choice(setting, name, data.domain_names)


def uneven_classes(data: DomainSet, domains: Sequence[str], test_domains: Sequence[str] = ()) -> list[str]:
    """Return one phrase for each difference between the classes of ``domains``, such as a class with two spellings.

    A class that occurs in only one of three or more domains, or only in ``test_domains``, is reported once rather than as
    missing from every other domain.
    """
    counts = data.counts("class")
    missing: dict[str, list[str]] = {}
    extra: dict[str, list[str]] = {}
    for label in data.classes:
        present = [domain for domain in domains if counts[domain][label]]
        if present and (set(present) <= set(test_domains) or len(present) == 1 < len(domains) - 1):
            extra.setdefault(f"{', '.join(present)} {'has' if len(present) == 1 else 'have'}", []).append(label)
        elif present:
            for domain in (domain for domain in domains if domain not in present):
                missing.setdefault(domain, []).append(label)
    return [
        *(f"{domain} has no {first_few(labels)}" for domain, labels in missing.items()),
        *(f"only {domains_have} {first_few(labels)}" for domains_have, labels in extra.items()),
    ]
