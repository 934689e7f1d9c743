"""What can be seen in the features of a trained model: one row for each analysis, which writes a picture and its numbers.

analysis = ANALYSES["histogram"]
indices = pick(data, analysis.per_domain)
analysis.analyse(model, data, indices, size, Path("out"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from efdm.lab.analyses import histogram, ties, tsne
from efdm.lab.analyses.features import features_of, pick

__all__ = ["ANALYSES", "Analysis", "features_of", "pick"]


@dataclass(frozen=True)
class Analysis:
    """``analyse(model, data, indices, size, out, *, batch=..., name=..., and options of its own)`` returns the numbers.

    ``per_domain`` pictures of each domain are enough for it and can be waited for on a CPU. ``summary`` has the main ones of
    the numbers as lines to read.
    """

    about: str
    analyse: Callable[..., dict[str, Any]]
    summary: Callable[[dict[str, Any]], list[str]]
    files: tuple[str, ...]
    per_domain: int


ANALYSES: Mapping[str, Analysis] = MappingProxyType({
    "histogram": Analysis(
        "one channel's standardised features in each domain, beside the normal curve",
        histogram.analyse,
        histogram.summary,
        ("histogram.png", "histogram.csv", "histogram.json"),
        250,
    ),
    "tsne": Analysis(
        "t-SNE of mean, deviation, skewness, kurtosis and infinity norm, and how well each tells the domain",
        tsne.analyse,
        tsne.summary,
        ("tsne.png", "tsne.csv", "tsne.json"),
        250,
    ),
    "ties": Analysis(
        "percent of equal values after every stage, with the model's activation and with PReLU",
        ties.analyse,
        ties.summary,
        ("ties.png", "ties.md", "ties.json"),
        25,
    ),
})  # fmt: skip
