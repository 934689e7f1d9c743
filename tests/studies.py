"""A small study without networks, and simulated raters with a known preference."""

import math
import random
from pathlib import Path

import torch

from efdm.data import Source, write_picture
from efdm.style.evaluate import Pair
from efdm.style.study import Study, make_study

# log strengths of the candidates, with mean 0; each candidate paints its pictures in one colour
PREFERENCE = {"good": 1.0, "fair": 0.0, "poor": -1.0}
COLORS = {"good": (0.0, 0.6, 0.0), "fair": (0.0, 0.0, 0.8), "poor": (0.8, 0.0, 0.0)}


def small_study(folder: Path, *, pairs: int = 6, **options: object) -> Study:
    sources = []
    for number in range(pairs):
        path = folder / "inputs" / f"{number}.png"
        write_picture(path, torch.rand(3, 32, 40))
        sources.append(Source(path.name, path.stem, path))
    renders = {
        label: (lambda pair, content, style, c=color: torch.tensor(c).view(1, 3, 1, 1).expand_as(content), {"kind": "paint"})
        for label, color in COLORS.items()
    }
    return make_study(folder / "study", [Pair(s, s) for s in sources], renders, size=32, **options)


def choose(labels: list[str], draw: random.Random) -> str:
    """Return a candidate by Luce's model."""
    return draw.choices(labels, [math.exp(PREFERENCE[label]) for label in labels])[0]


def simulate(study: Study, raters: int) -> None:
    """Store the votes of raters with the known preference, all at once."""
    draw, rows = random.Random(0), []
    for rater in (f"r{number}" for number in range(raters)):
        for item in range(len(study.items)):
            order = study.order(rater, item)
            choice = choose(order, draw)
            rows.append((rater, item, choice, order.index(choice), 1.0, ""))
    with study._database() as database:
        database.executemany("insert into votes values (?, ?, ?, ?, ?, ?)", rows)
