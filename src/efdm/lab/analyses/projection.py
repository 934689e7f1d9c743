"""Accuracy with test-time projection: features of new domains are matched to the nearest training domain.

The quantile functions of a training domain are the means of its sorted features, per channel, after every stage. A test
picture's features are matched to the nearest of them, or blended with the match. Nothing is retrained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm import kernels
from efdm.dg.evaluate import count_correct
from efdm.errors import SettingError
from efdm.lab.analyses.features import Sample, device_of, pick
from efdm.nn import find_stage
from efdm.ops import PreparedStyle, project
from efdm.text import markdown_table

STRENGTHS = (0.1, 0.25, 0.5, 1.0)


def quantile_functions(sample: Sample, stages: Sequence[str]) -> dict[str, PreparedStyle]:
    """Return the mean sorted features ``(k, c, n)`` of the sample's ``k`` domains after every stage."""
    sums: dict[str, Tensor] = {}
    for labels, features in sample.features(stages):
        shares = torch.nn.functional.one_hot(labels, len(sample.domains)) / sample.labels.bincount()
        for stage, values in features.items():
            rows = kernels.sort_rows(values.flatten(2).float())
            part = (shares.T.to(rows) @ rows.flatten(1)).view(-1, *rows.shape[1:])
            sums[stage] = sums[stage] + part if stage in sums else part
    return {stage: PreparedStyle(rows) for stage, rows in sums.items()}


@contextmanager
def projected(
    model: nn.Module, references: Mapping[str, PreparedStyle], strength: float = 1.0, method: str = "efdm"
) -> Iterator[None]:
    """Project the features after every stage in ``references`` inside a ``with`` block, see `efdm.ops.project`."""

    def hook(rows: PreparedStyle, layout: tuple[int, int], _module: Any, _inputs: Any, output: Tensor) -> Tensor:
        channel_dim, prefix = layout
        out = project(output[:, prefix:], rows, strength, method=method, channel_dim=channel_dim)
        return torch.cat([output[:, :prefix], out], 1) if prefix else out

    with ExitStack() as stack:
        for stage, rows in references.items():
            place = find_stage(model, stage)
            stack.enter_context(place.module.register_forward_hook(partial(hook, rows, place.layout)))
        yield


def analyse(
    sample: Sample,
    out: Path,
    *,
    stages: Sequence[str],
    train_domains: Sequence[str],
    strengths: Sequence[float] = STRENGTHS,
    methods: Sequence[str] = ("efdm", "adain"),
    per_domain: int | None = None,
) -> dict[str, Any]:
    """Write projection.json and projection.md, and return the contents of the JSON file.

    Pictures of the training split of ``train_domains`` (at most ``per_domain`` each) give the quantile functions. The
    accuracy is that of the sample's pictures of other domains: of the unchanged model, and for every method and strength.
    """
    domains = [domain for domain in sample.domains if domain not in train_domains]
    if not domains:
        raise SettingError(f"{', '.join(train_domains)} were trained on; pass pictures of other domains", "data")
    if missing := [domain for domain in train_domains if domain not in sample.data.domain_names]:
        raise SettingError(f"no pictures of {', '.join(missing)}; pass those of all training domains", "data")
    training = replace(sample, indices=pick(sample.data, per_domain, domains=train_domains, split="train"))
    references = quantile_functions(training, stages)
    indices = {domain: sample.indices[sample.labels == sample.domains.index(domain)] for domain in domains}
    data = sample.data.to(device_of(sample.model))
    rows = []
    for method, strength in [("none", 0.0), *product(methods, strengths)]:
        with projected(sample.model, references if strength else {}, strength, method):
            counts = {d: count_correct(sample.model, data, at, sample.size) for d, at in indices.items()}
        rows.append({"method": method, "strength": strength, "counts": counts})
    numbers = {"stages": list(stages), "train_domains": list(train_domains), "rows": rows}
    content = sample.save("projection", numbers, out)
    (out / "projection.md").write_text(table(content))
    return content


def table(content: Mapping[str, Any]) -> str:
    """Return a Markdown table with the accuracy in each domain, a line per method and strength."""
    rows = content["rows"]
    lines = [
        [row["method"], f"{row['strength']:g}", *(f"{100 * right / count:.1f}" for right, count in row["counts"].values())]
        for row in rows
    ]
    note = f"Accuracy in %, projected after {', '.join(content['stages'])}."
    return f"{markdown_table(['match', 'strength', *rows[0]['counts']], lines)}\n\n{note}\n"
