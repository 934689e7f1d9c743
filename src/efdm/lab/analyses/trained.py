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
from efdm.lab.preparation import check_writable, dataset_name
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore


def analyse_classifier(
    analysis: str,
    checkpoint: Path,
    sources: Sequence[Path],
    out: Path,
    *,
    domains: Sequence[str] | None = None,
    per_domain: int | None = None,
    device: str | torch.device = "cpu",
    progress: Report = ignore,
    **options: Any,
) -> dict[str, Any]:
    """Write the files of an analysis to ``out`` and return its numbers.

    ``checkpoint`` is a model.safetensors or the folder of its run. ``sources`` may be empty for a model of the digits.
    ``per_domain`` pictures of each domain are used, by default as many as the analysis needs. ``options`` are those of the
    analysis: ``stages``, ``channel``, ``perplexity``. Features are taken after the first stage that the method changed;
    "ties" uses all stages.
    """
    check_choice("analysis", analysis, ANALYSES)
    row = ANALYSES[analysis]
    options = _check_options(analysis, options)
    check_writable(out)
    path = find_classifier(checkpoint)
    classifier = load_classifier(path, device)
    settings = classifier.settings
    sources = sources or ([Path(DIGITS)] if settings["data"] == DIGITS else [])
    if not sources:
        raise SettingError(f"{path} was trained on {settings['data']}; give these or similar pictures", "data")
    data = load_dataset(dataset_name(sources), sources, classifier.stored_size, progress=progress)
    if "stages" in inspect.signature(row.analyse).parameters:
        options.setdefault("stages", classifier.stages)
    elif settings["stages"]:
        options.setdefault("stage", settings["stages"][0])
    check_domains("domains", domains or (), data)
    indices = pick(data, per_domain or row.per_domain, domains=domains)
    name = f"{settings['backbone']}, {settings['method']}"
    return row.analyse(Sample(classifier.model, data, indices, classifier.size, name), out, **options)


def _check_options(analysis: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, with ``stages`` as ``stage`` for an analysis of one stage. Raise for an unknown option."""
    accepted = inspect.signature(ANALYSES[analysis].analyse).parameters
    if "stages" in options and "stage" in accepted:
        stage, *others = options["stages"]
        if others:
            raise SettingError(f"{analysis} takes one stage, got {len(options['stages'])}", "stage")
        options = {**{name: value for name, value in options.items() if name != "stages"}, "stage": stage}
    for name in options:
        if name not in accepted:
            raise SettingError(f"{analysis} has no option {name!r}", name)
    return options
