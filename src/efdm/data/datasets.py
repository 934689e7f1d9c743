"""Data sets by name: load, list and describe them, and check that a run resumes with the pictures it was started with."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from efdm.data import digits, pacs
from efdm.data.domains import DomainSet, load_domains
from efdm.data.layouts import find_items
from efdm.errors import RunFolderError, SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.text import first_few

DIGITS, PACS = "digits", "pacs"
SHA256 = "pictures_sha256"
# entries of `describe`, and what they describe
DESCRIPTION = {"pictures": "numbers of pictures", "splits": "sizes of splits", SHA256: "names, labels or sizes"}
UNCHECKED = (
    "the domains are those of PACS, but they are read like any folder, with a random split and without a check that the "
    "copy is complete; recipes for PACS (in Python, load_pacs) read the official lists"
)


class Listing(NamedTuple):
    """The names of domains and classes, with the field names of `DomainSet`."""

    domain_names: list[str]
    classes: list[str]


# loader and listing; other names refer to folders and zips with the layout domain/class/picture
DATASETS: Mapping[str, tuple[Callable[..., DomainSet], Listing]] = {
    DIGITS: (
        lambda _, *, size, progress, storage="memory", domains=None: digits.load_digits_domains(size),
        Listing(list(digits.STYLES), digits.CLASSES),
    ),
    PACS: (pacs.load_pacs, Listing(list(pacs.PICTURES), list(pacs.CLASSES))),
}  # fmt: skip


def load_dataset(
    name: str, sources: str | Path | Sequence[str | Path], size: int, *, progress: Report = ignore, **options: Any
) -> DomainSet:
    """Load a set with pictures of ``size`` pixels. ``options`` are passed to its loader, such as the lists of PACS."""
    load = DATASETS[name][0] if name in DATASETS else load_domains
    data = load(sources, size=size, progress=progress, **options)
    unchecked = name not in DATASETS and set(data.domain_names) == set(pacs.PICTURES)
    return replace(data, notes=[*data.notes, UNCHECKED]) if unchecked else data


def list_domains(name: str, sources: Sequence[Path]) -> Listing:
    """Return the domains and classes of a set from the names of its files."""
    if name in DATASETS:
        return DATASETS[name][1]
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
    missing, extra = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for label in data.classes:
        present = [domain for domain in domains if counts[domain][label]]
        if present and (set(present) <= set(test_domains) or len(present) == 1 < len(domains) - 1):
            extra[f"{', '.join(present)} {'has' if len(present) == 1 else 'have'}"].append(label)
        elif present:
            for domain in set(domains) - set(present):
                missing[domain].append(label)
    return [
        *(f"{domain} has no {first_few(missing[domain])}" for domain in domains if domain in missing),
        *(f"only {domains_have} {first_few(labels)}" for domains_have, labels in extra.items()),
    ]


def describe(data: Any) -> dict[str, Any]:
    """Return the counts and the fingerprint of a `DomainSet` or of sets of people, for JSON."""
    splits = {"splits": data.counts("split")} if isinstance(data, DomainSet) else {}
    return {"pictures": data.counts(), **splits, SHA256: data.fingerprint()}


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: str | os.PathLike[str]) -> None:
    """Raise `RunFolderError` if the data that ``now`` describes differ from those with which ``folder`` was started.

    Entries missing from either description are not compared, because older folders hold only counts.
    """
    for entry, what in DESCRIPTION.items():
        if entry in before and entry in now and before[entry] != now[entry]:
            message = f"{folder} was started with other data ({what} differ); use the same data or choose another folder"
            raise RunFolderError(message, folder, "other data")
