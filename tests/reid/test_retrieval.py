import numpy as np
import pytest
import torch
from retrieval import slow_rank

from efdm.reid.retrieval import Features, Ranking, full_precision, pairwise, rank, rank_distances


def random_case(
    seed: int, device: torch.device | str = "cpu", queries: int = 40, pictures: int = 300
) -> tuple[Features, Features]:
    g = torch.Generator().manual_seed(seed)

    def features(n: int) -> Features:
        people, cameras = torch.randint(0, 25, (n,), generator=g), torch.randint(0, 4, (n,), generator=g)
        return Features(torch.randn(n, 16, generator=g) + 0.3 * people[:, None] % 3, people, cameras).to(device)

    return features(queries), features(pictures)


def assert_same(a: Ranking, b: Ranking, tolerance: float = 1e-12) -> None:
    assert abs(a.mean_ap - b.mean_ap) <= tolerance
    torch.testing.assert_close(a.cmc, b.cmc, atol=tolerance, rtol=0)


@pytest.mark.parametrize("seed", range(20))
def test_scores_follow_the_definition(seed: int, device: torch.device) -> None:
    query, gallery = random_case(seed, device)
    distances = pairwise(query.vectors, gallery.vectors)
    assert_same(rank(query, gallery), slow_rank(distances, query, gallery))


@pytest.mark.parametrize("seed", range(20))
def test_scores_agree_with_torchreid(seed: int) -> None:
    theirs = pytest.importorskip("torchreid").reid.metrics
    query, gallery = random_case(seed, queries=60, pictures=500)
    distances = pairwise(query.vectors, gallery.vectors)
    labels = [x.numpy() for x in (query.people, gallery.people, query.cameras, gallery.cameras)]
    cmc, mean_ap = theirs.evaluate_rank(distances.numpy(), *labels, max_rank=50, use_cython=False)
    assert_same(rank(query, gallery), Ranking(mean_ap, torch.from_numpy(cmc).double()), 1e-6)


def test_equal_distances_rank_in_gallery_order(device: torch.device) -> None:
    """Small integers have many ties, and their distances are exact in every order of summation."""
    g = torch.Generator().manual_seed(0)
    people = torch.randint(0, 5, (64,), generator=g)
    features = Features(torch.randint(0, 2, (64, 3), generator=g).float(), people, torch.arange(64) % 3).to(device)
    query, gallery = features.select(torch.arange(16)), features.select(torch.arange(16, 64))
    distances = (query.vectors[:, None] - gallery.vectors).pow(2).sum(2).sqrt()
    assert len(distances.unique()) < 5
    expected = slow_rank(distances, query, gallery)
    before = distances.clone()
    assert_same(rank_distances(distances, query, gallery), expected)
    assert torch.equal(distances, before)
    reverse = torch.arange(len(gallery)).flip(0)
    assert rank_distances(distances[:, reverse], query, gallery.select(reverse)).mean_ap != expected.mean_ap


def test_same_person_from_the_same_camera_is_left_out() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    people, cameras = torch.tensor([1, 1, 2, 1, 1]), torch.tensor([0, 0, 0, 1, 2])
    features = Features(vectors, people, cameras)
    found = rank(features.select(torch.tensor([0])), features.select(torch.arange(1, 5)), top=3)
    assert found.mean_ap == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found.cmc.tolist() == [0, 1, 1]


def test_queries_without_a_match_are_not_counted() -> None:
    query, gallery = random_case(0)
    stranger = Features(torch.randn(3, 16), torch.tensor([99, 99, 98]), torch.zeros(3, dtype=torch.int64))
    both = Features(*(torch.cat(pair) for pair in zip(vars(stranger).values(), vars(query).values(), strict=True)))
    assert_same(rank(both, gallery), rank(query, gallery))
    with pytest.raises(ValueError, match="none of 3 queries has a match"):
        rank(stranger, gallery)
    nothing = gallery.select(torch.arange(0))
    for pair in ((query, nothing), (nothing, gallery)):
        with pytest.raises(ValueError, match="has a match"):
            rank(*pair)


@pytest.mark.parametrize("chunk", [1, 700, 10**9])
def test_chunks_do_not_change_the_scores(chunk: int) -> None:
    query, gallery = random_case(1)
    # vectors of 16 signs have length 4, so their products are exact
    query, gallery = (Features(f.vectors.sign(), f.people, f.cameras) for f in (query, gallery))
    assert_same(rank(query, gallery, chunk=chunk), rank(query, gallery), 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_ranked_in_float32(dtype: torch.dtype) -> None:
    query, gallery = random_case(2)
    halves = [Features(f.vectors.to(dtype), f.people, f.cameras) for f in (query, gallery)]
    wholes = [Features(f.vectors.to(dtype).float(), f.people, f.cameras) for f in (query, gallery)]
    assert_same(rank(*halves), rank(*wholes), 0)


def test_distances_do_not_use_tf32(device: torch.device) -> None:
    query, gallery = random_case(0, device)
    expected = pairwise(query.vectors.cpu(), gallery.vectors.cpu())
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        torch.testing.assert_close(pairwise(query.vectors, gallery.vectors).cpu(), expected, atol=1e-6, rtol=0)
        rank(query, gallery)
        assert torch.get_float32_matmul_precision() == "high"
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


def test_bad_input_is_refused() -> None:
    query, gallery = random_case(0)
    with pytest.raises(ValueError, match=r"\(40, 16\) and \(300, 8\)"):
        rank(query, Features(gallery.vectors[:, :8], gallery.people, gallery.cameras))
    with pytest.raises(ValueError, match="NaN"):
        rank(Features(query.vectors * torch.nan, query.people, query.cameras), gallery)
    with pytest.raises(ValueError, match=r"people must be integers \(40,\)"):
        Features(query.vectors, query.people[:3], query.cameras)
    with pytest.raises(ValueError, match=r"\(300, 40\)"):
        rank_distances(torch.zeros(300, 40), query, gallery)
    with pytest.raises(TypeError, match="cameras must be a tensor, got ndarray"):  # as for torchreid's evaluate_rank
        Features(query.vectors, query.people, query.cameras.numpy())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="distances must be a tensor, got ndarray"):
        rank_distances(np.zeros((40, 300)), query, gallery)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top"):
        rank(query, gallery, top=0)
