"""Person re-identification: train embeddings of pictures of people and rank a gallery by its distance to a query."""

from efdm.errors import requires

with requires("reid"):
    from efdm.recognition.settings import identity
    from efdm.reid.evaluate import extract, score
    from efdm.reid.model import Embedder, load_embedder, save_embedder
    from efdm.reid.protocols import PROTOCOLS, Trial, make_trials, write_trials
    from efdm.reid.rerank import k_reciprocal
    from efdm.reid.retrieval import Features, Ranking, rank, rank_distances
    from efdm.reid.search import SearchResult, search_files
    from efdm.reid.sets import PersonSets, read_sets
    from efdm.reid.settings import METHODS, Settings
    from efdm.reid.training import Trained, train, train_together

__all__ = [
    "METHODS", "PROTOCOLS", "Embedder", "Features", "PersonSets", "Ranking", "SearchResult", "Settings", "Trained", "Trial",
    "extract", "identity", "k_reciprocal", "load_embedder", "make_trials", "rank", "rank_distances", "read_sets",
    "save_embedder", "score", "search_files", "train", "train_together", "write_trials",
]  # fmt: skip
