"""Analyse a trained classifier: find its model and its pictures, and apply a row of `ANALYSES` to them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from efdm.data.datasets import DIGITS, check_domains, load_dataset
from efdm.dg.classifier import find_classifier, load_classifier
from efdm.errors import SettingError
from efdm.lab.analyses import ANALYSES, Sample, pick
from efdm.lab.preparation import dataset_name
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore


def analyse_classifier(
    analysis: str,
    checkpoint: Path,
    sources: Sequence[Path],
    out: Path,
    *,
    stages: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    per_domain: int | None = None,
    device: str | torch.device = "cpu",
    progress: Report = ignore,
    **options: Any,
) -> dict[str, Any]:
    """Write the files of an analysis to ``out`` and return its numbers.

    ``checkpoint`` is a model.safetensors or the folder of its run. ``sources`` may be empty for a model of the digits.
    ``per_domain`` pictures of each domain are used, by default as many as the analysis needs. Features are
    taken after ``stages``: one for "histogram" and "tsne", by default the first that the method changed, several for "ties",
    by default all. ``options`` are those of the analysis: ``channel``, ``perplexity``.
    """
    check_choice("analysis", analysis, ANALYSES)
    row = ANALYSES[analysis]
    accepted = inspect.signature(row.analyse).parameters
    for name in options:
        if name not in accepted:
            raise SettingError(f"{analysis} has no option {name!r}", name)
    if "stage" in accepted and len(stages or ()) > 1:
        raise SettingError(f"{analysis} takes one stage, got {', '.join(stages or ())}", "stage")
    path = find_classifier(checkpoint)
    classifier = load_classifier(path, device)
    settings = classifier.settings
    sources = sources or ([Path(DIGITS)] if settings["data"] == DIGITS else [])
    if not sources:
        raise SettingError(f"{path} was trained on {settings['data']}; give these or similar pictures", "data")
    data = load_dataset(dataset_name(sources), sources, classifier.stored_size, progress=progress)
    if "stages" in accepted:
        options["stages"] = stages or classifier.stages
    elif stages or settings["stages"]:
        options["stage"] = (stages or settings["stages"])[0]
    check_domains("domains", domains or (), data)
    indices = pick(data, per_domain or row.per_domain, domains=domains)
    name = f"{settings['backbone']}, {settings['method']}"
    return row.analyse(Sample(classifier.model, data, indices, classifier.size, name), out, **options)
