"""Notes on data sets, and scores as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from efdm.apps.cli.printing import print_text, print_warning
from efdm.apps.cli.report import print_tables
from efdm.lab.report import Table
from efdm.lab.tasks import RETRIEVAL_SCORES
from efdm.reid import PROTOCOLS, PersonSets
from efdm.reid.evaluate import Reranking


def print_notes(data: PersonSets) -> None:
    """Print warnings about the copies of data sets."""
    for note in data.notes:
        print_warning(note)


def print_scores(scores: Mapping[str, Mapping[str, Any]], reranking: Reranking = "none") -> None:
    """Print a row of scores for each test set, and the meaning of the protocols."""
    counts = ("queries", "gallery", "trials")
    rows = [
        [name, *(f"{100 * found[entry]:.1f}" for entry in RETRIEVAL_SCORES.values()), found["protocol"],
         *(str(found[count]) for count in counts)]
        for name, found in scores.items()
    ]  # fmt: skip
    used = dict.fromkeys(found["protocol"] for found in scores.values())
    ranking = [] if reranking == "none" else [f"Re-ranked by {reranking} encoding: do not compare with other scores."]
    caption = ["In %, averaged over trials.", *ranking, *(f"{name}: {PROTOCOLS[name].about}." for name in used)]
    print_tables([Table("Scores of the test sets", ["data", *RETRIEVAL_SCORES, "protocol", *counts], rows, caption)])


def print_trials(files: Sequence[Path]) -> None:
    """Print the files that list the queries and the galleries."""
    for path in files:
        print_text(f"queries and gallery: {path}")
