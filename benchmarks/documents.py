"""Generated tables in Markdown documents. Each table is enclosed by two comments with its name and its script."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from records import ROOT

README = ROOT / "README.md"
GUIDES = ROOT / "docs" / "guide"


class Table(NamedTuple):
    """A table in a document. ``render`` returns its Markdown, computed from the committed records."""

    document: Path
    name: str
    script: str
    render: Callable[[], str]


def with_table(text: str, table: Table) -> str:
    """Return the text of a document with the table updated."""
    begin, end = f"<!-- {table.name}: made by benchmarks/{table.script} -->", f"<!-- end of {table.name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table.render()}\n{end}{rest.split(end)[1]}"


def main(tables: Sequence[Table], description: str | None) -> bool:
    """Print the tables of a report and, with the option ``--readme``, update them in the documents. Return the option."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="update the tables in the documents")
    update: bool = parser.parse_args().readme
    for table in tables:
        if update:
            table.document.write_text(with_table(table.document.read_text(), table))
        print(table.render(), end="\n\n")
    return update


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
