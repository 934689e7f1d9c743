import math

import pytest
import torch
from torch import Tensor

from efdm.reid.rerank import k_reciprocal
from efdm.reid.retrieval import Features, pairwise, rank, rank_distances


def slow_k_reciprocal(vectors: Tensor, queries: int, k1: int, k2: int, weight: float) -> Tensor:
    """Return the distances by the definitions of the paper (section 3), with sets, one pair of pictures at a time.

    As in the authors' code, a picture is its own nearest neighbour and is not one of the k.
    """
    original = pairwise(vectors, vectors).double()
    original = original / original.amax(1, keepdim=True)
    order = original.sort(dim=1, stable=True).indices.tolist()
    n = len(vectors)

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in order[i][: k + 1] if i in order[j][: k + 1]}

    encoded = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        members = own = reciprocal(i, k1)
        for j in own:
            theirs = reciprocal(j, round(k1 / 2))
            if len(theirs & own) > 2 / 3 * len(theirs) + 1e-9:
                members = members | theirs
        for j in members:
            encoded[i, j] = math.exp(-original[i, j])
    encoded /= encoded.sum(1, keepdim=True)
    encoded = torch.stack([encoded[order[i][:k2]].mean(0) for i in range(n)])
    out = torch.empty(queries, n - queries, dtype=torch.float64)
    for i in range(queries):
        for j in range(queries, n):
            jaccard = 1 - torch.minimum(encoded[i], encoded[j]).sum() / torch.maximum(encoded[i], encoded[j]).sum()
            out[i, j - queries] = (1 - weight) * jaccard + weight * original[i, j]
    return out


def clustered(seed: int, people: int = 6, each: int = 8, queries: int = 12) -> tuple[Features, Features]:
    """Return features of people around centres, so that sets of neighbours overlap and differ."""
    g = torch.Generator().manual_seed(seed)
    numbers = torch.arange(people).repeat(each)
    vectors = torch.randn(people, 6, generator=g)[numbers] + 0.5 * torch.randn(len(numbers), 6, generator=g)
    every = Features(vectors, numbers, torch.arange(each).repeat_interleave(people) % 4)
    return every.select(torch.arange(queries)), every.select(torch.arange(queries, len(numbers)))


@pytest.mark.parametrize(
    ("k1", "k2", "weight"),
    [(8, 3, 0.3), (7, 1, 0.3), (5, 6, 0.0), (20, 6, 1.0), pytest.param(60, 60, 0.3, id="more neighbours than pictures")],
)
def test_distances_follow_the_definition(k1: int, k2: int, weight: float, device: torch.device) -> None:
    query, gallery = clustered(0)
    expected = slow_k_reciprocal(torch.cat([query.vectors, gallery.vectors]), len(query), k1, k2, weight)
    found = k_reciprocal(query.to(device), gallery.to(device), k1=k1, k2=k2, weight=weight)
    torch.testing.assert_close(found.cpu().double(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_distances_agree_with_torchreid(seed: int) -> None:
    theirs = pytest.importorskip("torchreid").reid.utils.re_ranking
    query, gallery = clustered(seed, people=12, each=20, queries=40)
    # it squares Euclidean distances, which for unit vectors gives twice the cosine distances
    q, g = (torch.nn.functional.normalize(x.vectors) for x in (query, gallery))
    blocks = [torch.cdist(a, b).numpy() for a, b in ((q, g), (q, q), (g, g))]
    expected = torch.from_numpy(theirs(*blocks))
    torch.testing.assert_close(k_reciprocal(query, gallery), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("chunk", [1, 200])
def test_chunks_do_not_change_the_distances(chunk: int) -> None:
    query, gallery = clustered(1)
    torch.testing.assert_close(k_reciprocal(query, gallery, k1=8, chunk=chunk), k_reciprocal(query, gallery, k1=8))


def test_reranking_helps_where_people_form_clusters() -> None:
    query, gallery = clustered(2, people=20, each=16, queries=60)
    before, after = rank(query, gallery), rank_distances(k_reciprocal(query, gallery, k1=12, k2=4), query, gallery)
    assert after.mean_ap > before.mean_ap + 0.02


def test_bad_settings_are_refused() -> None:
    query, gallery = clustered(0)
    with pytest.raises(ValueError, match="k1 must be >= 1, got 0"):
        k_reciprocal(query, gallery, k1=0)
    with pytest.raises(ValueError, match="weight must be from 0 to 1, got 2"):
        k_reciprocal(query, gallery, weight=2)
