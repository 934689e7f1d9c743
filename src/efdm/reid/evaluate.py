"""Scores of a network on the trials of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import torch
from torch import nn

from efdm.data.people import PersonSet
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.recognition.pixels import Size
from efdm.reid.embed import extract_at
from efdm.reid.protocols import Trial
from efdm.reid.rerank import k_reciprocal
from efdm.reid.retrieval import Distance, Features, Ranking, rank, rank_distances
from efdm.training.lanes import Work

Reranking = Literal["none", "k-reciprocal"]


def rank_again(query: Features, gallery: Features, *, distance: Distance = "cosine", top: int = 50) -> Ranking:
    """Rank the gallery by `k_reciprocal` distances."""
    return rank_distances(k_reciprocal(query, gallery, distance=distance), query, gallery, top=top)


RERANKINGS: Mapping[str, Callable[..., Ranking]] = MappingProxyType({"none": rank, "k-reciprocal": rank_again})


def score(
    features: Features,
    trials: Sequence[Trial],
    *,
    distance: Distance = "cosine",
    reranking: Reranking = "none",
    top: int = 50,
) -> Ranking:
    """Return mAP and CMC, averaged over trials. ``features`` has a row for every picture of the set."""
    check_choice("reranking", reranking, RERANKINGS)
    ranking_of = RERANKINGS[reranking]
    found = [
        ranking_of(features.select(trial.query), features.select(trial.gallery), distance=distance, top=top)
        for trial in trials
    ]
    mean_ap = sum(ranking.mean_ap for ranking in found) / len(found)
    return Ranking(mean_ap, torch.stack([ranking.cmc for ranking in found]).mean(0))


def evaluate(
    model: nn.Module,
    data: PersonSet,
    trials: Sequence[Trial],
    *,
    size: Size,
    precision: str = "fp32",
    reranking: Reranking = "none",
    top: int = 50,
    progress: Report = ignore,
) -> Work[Ranking]:
    """Return the `score` of a network, computing features only for the pictures of the trials.

    Yields after every batch; `efdm.training.lanes.finish` runs it to completion.
    """
    at = torch.cat([indices for trial in trials for indices in trial]).unique()
    vectors = yield from extract_at(model, data.images, at, size=size, precision=precision, progress=progress)
    every = torch.zeros(len(data), vectors.shape[1], device=vectors.device)
    every[at.to(every.device)] = vectors
    features = Features(every, data.people.to(every.device), data.cameras.to(every.device))
    return score(features, trials, reranking=reranking, top=top)
