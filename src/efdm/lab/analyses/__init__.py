"""Analyses of the features of a trained model. Each is one row of a table and writes a figure and its numbers.

analysis = ANALYSES["histogram"]
indices = pick(data, analysis.per_domain)
analysis.analyse(Sample(model, data, indices, size), Path("out"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from efdm.lab.analyses import histogram, ties, tsne
from efdm.lab.analyses.features import Sample, pick

__all__ = ["ANALYSES", "Analysis", "Sample", "pick"]


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Args:
        analyse: ``analyse(sample, out, **options)`` writes ``files`` to the folder ``out`` and returns their numbers.
        summary: returns the main numbers as lines of text.
        per_domain: the default number of pictures per domain, enough for the analysis and feasible on a CPU.
    """

    about: str
    analyse: Callable[..., dict[str, Any]]
    summary: Callable[[dict[str, Any]], list[str]]
    files: tuple[str, ...]
    per_domain: int


ANALYSES: Mapping[str, Analysis] = MappingProxyType({
    "histogram": Analysis(
        "histograms of one channel's standardized features in each domain",
        histogram.analyse, histogram.summary, ("histogram.png", "histogram.csv", "histogram.json"), 250,
    ),
    "tsne": Analysis(
        "t-SNE of five feature statistics, and how well each predicts the domain",
        tsne.analyse, tsne.summary, ("tsne.png", "tsne.csv", "tsne.json"), 250,
    ),
    "ties": Analysis(
        "share of equal values after every stage, with ReLU and with PReLU",
        ties.analyse, ties.summary, ("ties.png", "ties.md", "ties.json"), 25,
    ),
})  # fmt: skip
