"""Feature vectors of pictures, and scores of a network on the trials of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.data.people import PersonSet
from efdm.models import embedding, embedding_width
from efdm.nn.stages import eval_mode
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.recognition.inference import BATCH, equal_batches, infer
from efdm.recognition.pixels import Size
from efdm.reid.model import Embedder
from efdm.reid.protocols import PROTOCOLS, Trial, count_matched, default_protocol, make_trials
from efdm.reid.rerank import k_reciprocal
from efdm.reid.retrieval import Features, Ranking, rank, rank_distances
from efdm.reid.sets import PersonSets, read_sets
from efdm.training.files import Record, rounded
from efdm.training.lanes import Work, finish

Reranking = Literal["none", "k-reciprocal"]
RANKS = (1, 5, 10)  # of the CMC, in records
SCORES: Mapping[str, str] = {"mAP": "mAP", **{f"R{k}": f"rank{k}" for k in RANKS}}  # name in tables -> entry of a record


def extract(
    model: nn.Module, images: Tensor, *, size: Size, batch: int = BATCH, precision: str = "fp32", progress: Report = ignore
) -> Tensor:
    """Return the features of uint8 pictures ``(n, 3, h, w)``, float32 ``(n, d)`` of length 1, on the device of the model.

    The features are those that enter the classifier. Pictures are resized to ``size`` (height, width).
    """
    every = torch.arange(len(images), device=images.device)
    return finish(extract_at(model, images, every, size=size, batch=batch, precision=precision, progress=progress))


def extract_at(
    model: nn.Module,
    images: Tensor,
    indices: Tensor,
    *,
    size: Size,
    batch: int = BATCH,
    precision: str = "fp32",
    progress: Report = ignore,
) -> Work[Tensor]:
    """Return the features of the pictures at ``indices``, as `extract` does, and yield after every batch."""
    device = next(model.parameters()).device
    vectors = torch.zeros(len(indices), embedding_width(model), device=device)
    done = 0
    with eval_mode(model):
        for at in equal_batches(indices.to(images.device), batch):
            features, _ = infer(partial(embedding, model), images[at].to(device), size, precision)
            part = vectors[done : done + len(at)]
            part.copy_(F.normalize(features.float())[: len(part)])
            done += len(part)
            progress(Progress("extracting features", done, len(vectors)))
            yield
    return vectors


def rank_k_reciprocal(query: Features, gallery: Features, *, top: int = 50) -> Ranking:
    """Return mAP and CMC of the gallery, ranked by `k_reciprocal` distances."""
    return rank_distances(k_reciprocal(query, gallery), query, gallery, top=top)


RERANKINGS: Mapping[str, Callable[..., Ranking]] = {"none": rank, "k-reciprocal": rank_k_reciprocal}


def score(features: Features, trials: Sequence[Trial], *, reranking: Reranking = "none", top: int = 50) -> Ranking:
    """Return mAP and CMC, averaged over trials. ``features`` has a row for every picture of the set."""
    check_choice("reranking", reranking, RERANKINGS)
    ranking_of = RERANKINGS[reranking]
    rankings = [ranking_of(features.select(trial.query), features.select(trial.gallery), top=top) for trial in trials]
    mean_ap = sum(ranking.mean_ap for ranking in rankings) / len(rankings)
    return Ranking(mean_ap, torch.stack([ranking.cmc for ranking in rankings]).mean(0))


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


def score_entries(model: nn.Module, data: PersonSet, trials: Sequence[Trial], protocol: str, **options: Any) -> Work[Record]:
    """Return the entries of a record for one test set: scores from 0 to 1, over the queries that have a match.

    ``options`` are those of `evaluate`.
    """
    ranking = yield from evaluate(model, data, trials, top=max(RANKS), **options)
    return {
        "protocol": protocol, "trials": len(trials), "queries": count_matched(data, trials[0]),
        "gallery": len(trials[0].gallery), "mAP": rounded(ranking.mean_ap),
        **{f"rank{k}": rounded(float(ranking.cmc[k - 1])) for k in RANKS},
    }  # fmt: skip


def score_files(
    embedder: Embedder,
    paths: Mapping[str, Path],
    *,
    protocol: str = "auto",
    seed: int = 0,
    reranking: Reranking = "none",
    progress: Report = ignore,
    **reading: Any,
) -> tuple[PersonSets, dict[str, dict[str, Any]]]:
    """Return the sets that were read, and the scores of a network on each, from 0 to 1, as in a record.

    ``protocol`` is a row of `PROTOCOLS`, or "auto" for `default_protocol` of each set. ``reading`` are arguments
    of `read_sets`.
    """
    check_choice("protocol", protocol, ("auto", *PROTOCOLS))
    data = read_sets(paths, size=embedder.size, progress=progress, **reading)
    scores = {}
    for name, people in data.sets.items():
        row = default_protocol(people) if protocol == "auto" else protocol
        trials = make_trials(people, row, seed)
        options: Any = {"size": embedder.size, "reranking": reranking, "progress": progress}
        scores[name] = finish(score_entries(embedder.model, people, trials, row, **options))
    return data, scores
