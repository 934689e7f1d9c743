"""Names of domains and classes, found without reading a picture, and checks of such names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from efdm.data import digits, pacs
from efdm.data.datasets import DIGITS, PACS
from efdm.data.domains import DomainSet
from efdm.data.layouts import find_items
from efdm.errors import SettingError
from efdm.text import first_few, suggest

SHOWN = 12  # names listed in a message


class Listing(NamedTuple):
    """The names of domains and classes, called as in `DomainSet`."""

    domain_names: list[str]
    classes: list[str]


# data sets whose names are fixed
LISTINGS: Mapping[str, Listing] = MappingProxyType({
    DIGITS: Listing(list(digits.STYLES), list(digits.CLASSES)),
    PACS: Listing(list(pacs.PICTURES), list(pacs.CLASSES)),
})  # fmt: skip


def list_domains(dataset: str, sources: Sequence[Path]) -> Listing:
    """Return the domains and classes of a data set from the names of its files."""
    if dataset in LISTINGS:
        return LISTINGS[dataset]
    items, _ = find_items(list(sources))
    return Listing(sorted({item.domain for item in items}), sorted({item.label for item in items}))


def check_domains(setting: str, names: Sequence[str], data: DomainSet | Listing) -> None:
    """Raise `SettingError` for a name that is not a domain of ``data``."""
    for name in names:
        if name in data.domain_names:
            continue
        if name in data.classes:
            hint = "it is a class; expected folders domain/class"
        else:
            close = suggest(name, data.domain_names)
            hint = f"did you mean {close}?" if close else "check the name"
        raise SettingError(
            f"{setting}: no domain {name!r} in {first_few(data.domain_names, SHOWN)}; {hint}", setting
        )  # fmt: skip


def uneven_classes(data: DomainSet, domains: Sequence[str], test_domains: Sequence[str] = ()) -> list[str]:
    """Return one phrase for each difference between the classes of ``domains``; often a class has two spellings.

    A class that a single domain of three or more has, or that only ``test_domains`` have, is reported once rather than as
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
