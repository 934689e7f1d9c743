"""Analyses of the features of a trained model. Each is a row of `ANALYSES` and writes a figure and its numbers.

Example::

    analysis = ANALYSES["histogram"]
    indices = pick(data, analysis.per_domain)
    analysis.analyse(Sample(model, data, indices, size), Path("out"), stages=["layer1"])

`analyse_classifier` does the same for the checkpoint of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from efdm.data.datasets import DIGITS, check_domains, load_dataset
from efdm.data.domains import Storage
from efdm.dg.classifier import load_classifier
from efdm.errors import SettingError
from efdm.lab.analyses import histogram, projection, ties, tsne
from efdm.lab.analyses.features import Sample, pick
from efdm.lab.dg_preparation import check_outside, dataset_name
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.text import first_few
from efdm.training.folder import check_unlocked

__all__ = ["ANALYSES", "Analysis", "Sample", "analyse_classifier", "pick"]


@dataclass(frozen=True)
class Analysis:
    """A row of `ANALYSES`.

    ``analyse(sample, out, stages=stages, **options)`` writes ``files`` to the folder ``out`` and returns their numbers. It
    also gets ``train_domains`` and ``per_domain`` if its ``classes`` are those of the model.
    """

    about: str
    analyse: Callable[..., dict[str, Any]]
    summary: Callable[[dict[str, Any]], str]  # the main numbers as text
    files: tuple[str, ...]
    per_domain: int | None  # default number of pictures per domain, feasible on a CPU; None: all
    stages: Literal["first mixed", "all mixed", "all"]  # default; mixed: changed by the method; "first" takes one stage
    options: tuple[str, ...] = ()  # further keyword arguments of ``analyse`` that users can set
    classes: Literal["any", "model"] = "any"  # of the pictures; "model": accuracies are measured


ANALYSES: Mapping[str, Analysis] = {
    "histogram": Analysis(
        "histograms of one channel's standardized features in each domain",
        histogram.analyse, histogram.summary, ("histogram.png", "histogram.csv", "histogram.json"), 250, "first mixed",
        options=("channel",),
    ),
    "tsne": Analysis(
        "t-SNE of five feature statistics, and how well each predicts the domain",
        tsne.analyse, tsne.summary, ("tsne.png", "tsne.csv", "tsne.json"), 250, "first mixed",
        options=("perplexity",),
    ),
    "projection": Analysis(
        "accuracy in new domains with features matched to the nearest training domain",
        projection.analyse, projection.table, ("projection.md", "projection.json"), None, "all mixed",
        options=("strengths", "methods"), classes="model",
    ),
    "ties": Analysis(
        "share of equal values after every stage, with ReLU and with PReLU",
        ties.analyse, ties.table, ("ties.png", "ties.md", "ties.json"), 25, "all",
        options=("precisions",),
    ),
}  # fmt: skip


def analyse_classifier(
    analysis: str,
    checkpoint: Path,
    sources: Sequence[Path],
    out: Path,
    *,
    stages: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    per_domain: int | None = None,
    storage: Storage = "memory",
    device: str | torch.device = "cpu",
    progress: Report = ignore,
    **options: Any,
) -> dict[str, Any]:
    """Write the files of an analysis to ``out`` and return its numbers.

    Args:
        checkpoint: a model.safetensors or the folder of its run.
        sources: folders or zips of pictures; may be empty for a model of the digits.
        stages: stages after which features are taken; defaults to those of the row: the first or all that the method
            changes, or all of the model.
        domains, classes: restrict the pictures to these domains and classes.
        per_domain: number of pictures of each domain; defaults to that of the row.
        storage: as in `load_domains`.
        options: ``options`` of the row, such as ``channel`` or ``perplexity``.
    """
    check_choice("analysis", analysis, ANALYSES)
    row = ANALYSES[analysis]
    for name in options:
        if name not in row.options:
            raise SettingError(f"{analysis} has no option {name!r}", name)
    if row.stages == "first mixed" and len(stages or ()) > 1:
        raise SettingError(f"{analysis} takes one stage, got {', '.join(stages or ())}", "stage")
    check_unlocked(out)
    classifier = load_classifier(checkpoint, device)
    settings = classifier.settings
    sources = sources or ([Path(DIGITS)] if settings["data"] == DIGITS else [])
    if not sources:
        raise SettingError(f"{checkpoint} was trained on {settings['data']}; pass these or similar pictures", "data")
    check_outside(out, sources)
    data = load_dataset(dataset_name(sources), sources, classifier.stored_size, storage=storage, progress=progress)
    mixed = settings["stages"] or classifier.stages
    default = {"first mixed": mixed[:1], "all mixed": mixed, "all": classifier.stages}
    if row.classes == "model":
        if data.classes != classifier.classes:
            problem = f"the classes {first_few(data.classes)} are not those of the model ({first_few(classifier.classes)})"
            raise SettingError(f"{problem}; pass pictures of the same classes", "data")
        options |= {"train_domains": settings["train_domains"], "per_domain": per_domain}
    check_domains("domains", domains or (), data)
    indices = pick(data, per_domain or row.per_domain, domains=domains, classes=classes)
    name = f"{settings['backbone']}, {settings['method']}"
    sample = Sample(classifier.model, data, indices, classifier.size, name, settings=settings)
    return row.analyse(sample, out, stages=stages or default[row.stages], **options)
