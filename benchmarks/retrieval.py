"""Time the evaluation of re-identification at the size of Market-1501 and write a record.

    python benchmarks/retrieval.py [--device cpu|cuda] [--out FILE]

Every evaluator starts from the features on the device and ends with mAP and CMC on the CPU, so all times include the
distances. torchreid's evaluators are timed if torchreid is installed (its Cython one only if it is compiled), otherwise the
definition, on a few queries. The features are synthetic: people around random centres, with distractors as in Market-1501.
"""

import importlib.metadata
import statistics
import time
from collections.abc import Callable

import torch
from records import make_parser, write_record
from torch import Tensor

from efdm.models import allow_torchvision
from efdm.reid.evaluate import rank_k_reciprocal
from efdm.reid.retrieval import Features, Ranking, pairwise, rank
from efdm.training.device import default_device

PEOPLE, CAMERAS, DISTRACTORS = 750, 6, 2793 / 15_913  # of Market-1501's test set
Evaluator = Callable[[Features, Features], Ranking]


def synthetic_features(queries: int, pictures: int, dimensions: int, device: str) -> tuple[Features, Features]:
    """Return the features of queries and of a gallery, in which person 0 are distractors."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(PEOPLE + 1, dimensions, generator=g)

    def features(n: int, others: int) -> Features:
        people = torch.randint(1, PEOPLE + 1, (n,), generator=g)
        people[:others] = 0
        vectors = torch.where(people[:, None] > 0, 0.25 * centres[people], 0.0) + torch.randn(n, dimensions, generator=g)
        return Features(vectors, people, torch.randint(1, CAMERAS + 1, (n,), generator=g)).to(device)

    return features(queries, 0), features(pictures, round(DISTRACTORS * pictures))


def slow_rank(distances: Tensor, query: Features, gallery: Features) -> Ranking:
    """Return mAP and CMC by their definitions, up to rank 50, one gallery picture at a time.

    Zheng et al., "Scalable Person Re-identification: A Benchmark", ICCV 2015: the precision at every match of a query is
    averaged over its matches and then over the queries; the CMC counts queries with a match among the first k.
    """
    precisions, firsts = [], []
    for i, row in enumerate(distances.tolist()):
        person, camera = int(query.people[i]), int(query.cameras[i])
        of_person = [p == person for p in gallery.people.tolist()]
        junk = [same and c == camera for same, c in zip(of_person, gallery.cameras.tolist(), strict=True)]
        listed = [of_person[j] for j in sorted(range(len(row)), key=lambda j: (row[j], j)) if not junk[j]]
        if not any(listed):
            continue
        at = [position for position, is_match in enumerate(listed, 1) if is_match]
        precisions.append(sum(sum(listed[:position]) / position for position in at) / len(at))
        firsts.append(at[0])
    cmc = [sum(first <= k for first in firsts) / len(firsts) for k in range(1, 51)]
    return Ranking(sum(precisions) / len(precisions), torch.tensor(cmc, dtype=torch.float64))


def definition(query: Features, gallery: Features) -> Ranking:
    return slow_rank(pairwise(query.vectors, gallery.vectors), query, gallery)


def torchreid_evaluators() -> dict[str, Evaluator]:
    """Return torchreid's evaluators by name, or an empty dictionary if it is not installed."""
    allow_torchvision()
    try:
        from torchreid.reid.metrics import compute_distance_matrix
        from torchreid.reid.metrics import rank as theirs
    except ImportError:
        return {}

    def evaluator(use_cython: bool) -> Evaluator:
        def evaluate(query: Features, gallery: Features) -> Ranking:
            distances = compute_distance_matrix(query.vectors, gallery.vectors, "cosine").cpu().numpy()
            labels = (query.people, gallery.people, query.cameras, gallery.cameras)
            found = theirs.evaluate_rank(distances, *(x.cpu().numpy() for x in labels), use_cython=use_cython)
            return Ranking(float(found[1]), torch.from_numpy(found[0]).double())

        return evaluate

    compiled = {"torchreid_cython": evaluator(True)} if theirs.IS_CYTHON_AVAI else {}
    return {"torchreid_python": evaluator(False), **compiled}


def measure(evaluate: Evaluator, query: Features, gallery: Features, rounds: int, budget: float) -> dict[str, object]:
    """Return the median of up to ``rounds`` times within ``budget`` seconds, and the difference from `rank`.

    The first call, which compiles kernels, is not counted unless it is the only one.
    """
    times: list[float] = []
    start = time.perf_counter()
    while not times or (len(times) <= rounds and time.perf_counter() - start < budget):
        before = time.perf_counter()
        found = evaluate(query, gallery)  # ends with a copy to the CPU, which waits for the device
        times.append(time.perf_counter() - before)
    counted = times[1:] or times
    expected = rank(query, gallery)
    difference = max(abs(found.mean_ap - expected.mean_ap), float((found.cmc - expected.cmc).abs().max()))
    return {
        "queries": len(query), "seconds": round(statistics.median(counted), 4),
        "spread": round((max(counted) - min(counted)) / 2, 4), "samples": len(counted),
        "mean_ap": round(found.mean_ap, 6), "rank_1": round(float(found.cmc[0]), 6), "difference": difference,
    }  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default_device())
    parser.add_argument("--queries", type=int, default=3368)
    parser.add_argument("--pictures", type=int, default=15_913)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds per evaluator; each runs at least once")
    options = parser.parse_args()
    query, gallery = synthetic_features(options.queries, options.pictures, options.dimensions, options.device)
    theirs = torchreid_evaluators()
    few = query.select(torch.arange(min(10, len(query))))
    cases: dict[str, tuple[Evaluator, Features]] = {"efdm": (rank, query), "efdm_k_reciprocal": (rank_k_reciprocal, query)}
    cases |= {name: (evaluate, query) for name, evaluate in theirs.items()} or {"definition": (definition, few)}
    rows = {}
    for name, (evaluate, queries) in cases.items():
        rows[name] = measure(evaluate, queries, gallery, options.rounds, options.budget)
        row = rows[name]
        print(f"{name:18} {row['queries']:5} queries {row['seconds']:9.3f} s  mAP {row['mean_ap']:.4f}", flush=True)
    record = {"queries": len(query), "pictures": len(gallery), "dimensions": options.dimensions, "rows": rows}
    if theirs:
        record["torchreid"] = importlib.metadata.version("torchreid")
    write_record(record, options.out, f"retrieval-{options.device}.json", options.device)


if __name__ == "__main__":
    main()
