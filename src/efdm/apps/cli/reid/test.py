"""``efdm reid test``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, option, parse_pairs, resolve_device
from efdm.apps.cli.printing import print_text, print_warning
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import MODEL_HELP, SETS_HELP, Layouts, parse_sets
from efdm.apps.cli.recognition_printing import print_data_warnings, print_scores
from efdm.data.images import write_bytes
from efdm.errors import SettingError
from efdm.reid import PROTOCOLS, load_embedder
from efdm.reid.evaluate import Reranking, score_files


@report_errors("interrupted; nothing was written")
def measure(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    data: Annotated[list[str], option(SETS_HELP)],
    protocol: Annotated[
        str,
        option(
            f"One of {', '.join(PROTOCOLS)}. Default: official if the set has queries and a gallery, otherwise "
            "camera-pair for two cameras and person-camera for more."
        ),
    ] = "auto",
    seed: Annotated[int, option("Seed of the queries that person-camera draws.")] = 0,
    split: Annotated[int, option("One of several published splits, such as the 10 of GRID.", min=0)] = 0,
    rerank: Annotated[bool, option("Re-rank the gallery by k-reciprocal encoding.", "--rerank")] = False,
    layout: Layouts = None,
    out: Annotated[Path | None, option("Also write the scores to a .json file.", "--out", "-o")] = None,
    device: Device = None,
) -> None:
    """Measure mAP and CMC of a trained network."""
    if out is not None and out.suffix.lower() != ".json":
        raise SettingError(f"{out} must end in .json", "out")
    embedder = load_embedder(model, resolve_device(device))
    with show_progress() as progress:
        reranking: Reranking = "k-reciprocal" if rerank else "none"
        sets, scores = score_files(
            embedder, parse_sets(data), protocol=protocol, seed=seed, reranking=reranking, split=split,
            layouts=parse_pairs("layout", layout, "LAYOUT"), progress=progress,
        )  # fmt: skip
    print_data_warnings(sets)
    print_scores(scores, reranking)
    seen = embedder.settings.get("train_domains", ())
    if trained_on := [name for name, record in scores.items() if name in seen and record["protocol"] != "official"]:
        print_warning(f"scores on training pictures ({', '.join(trained_on)}) say nothing about new people")
    if out is not None:
        content = {"settings": embedder.settings, "seed": seed, "split": split, "reranking": reranking, "test": scores}
        write_bytes(out, (json.dumps(content, indent=1) + "\n").encode())
        print_text(out)
