"""Tables in documents. Each stands between two comments, which say its name and what made it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


class Place(NamedTuple):
    document: Path
    name: str
    script: str
    render: Callable[[], str]


def filled(text: str, place: Place) -> str:
    """The text with the table that the records give now."""
    begin, end = f"<!-- {place.name}: made by benchmarks/{place.script} -->", f"<!-- end of {place.name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{place.render()}\n{end}{rest.split(end)[1]}"


def fill(places: Sequence[Place]) -> None:
    for place in places:
        place.document.write_text(filled(place.document.read_text(), place))


def asked_to_fill(about: str | None) -> bool:
    """The command line of all reports."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="put the tables into the documents")
    return bool(parser.parse_args().readme)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
