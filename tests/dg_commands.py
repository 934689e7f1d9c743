"""Helpers for tests of `efdm dg`: the commands, small pictures and a small recipe. Skips without typer."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import invoke
from runs import lines

from efdm.apps.cli.progress import Lines
from efdm.data import write_picture
from efdm.progress import Progress

RECIPE = '''"""A small recipe.

claim     none
"""

from efdm.lab import Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="{data}",
    methods={{"erm": {{}}, "efdmix": {{}}, "efdmix, often": {{"method": "efdmix", "options": {{"p": 0.9}}}}}},
    settings={{
        "backbone": "tiny", "stages": ("stage1",), "iterations": 2, "batch": 4, "size": 16, "augmentation": "none",
        "log_every": 1, "save_every": 1,
    }},
    seeds=(0, 1),
    orders=(("erm", "efdmix"),),
)
'''


run = partial(invoke, "dg")


def draw(folder: Path, domains: tuple[str, ...], classes: tuple[str, ...], count: int = 6) -> Path:
    """Write pictures of noise in a colour per class."""
    generator = torch.Generator().manual_seed(0)
    for domain in domains:
        for number, label in enumerate(classes):
            (folder / domain / label).mkdir(parents=True)
            for i in range(count):
                picture = torch.rand(3, 16, 20, generator=generator) * 0.5
                picture[number % 3] += 0.4
                write_picture(folder / domain / label / f"{i}.png", picture)
    return folder


def training(pictures: Path, folder: Path, /, **changes: Any) -> list[object]:
    common = {
        "data": pictures, "out": folder, "backbone": "tiny", "weights": "random", "size": 16, "batch": 8, "iterations": 3,
        "device": "cpu",
    }  # fmt: skip
    return ["train", *(w for k, v in {**common, **changes}.items() for w in (f"--{k.replace('_', '-')}", v))]


def studying(recipe: Path, pictures: Path, out: Path, *more: object) -> list[object]:
    command = ["run", recipe, "--data", pictures, "-o", out, "--device", "cpu", "--seeds", "1", "--methods", "erm,efdmix"]
    return [*command, *more]


class Interrupted:
    """Raise KeyboardInterrupt after some reports of training steps. ``seen`` has the label of the run of each report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left, self.seen = after, list[str]()
        original = Lines.__call__

        def report(lines: Lines, progress: Progress) -> None:
            if "loss" in progress.values:
                if self.left == 0:
                    raise KeyboardInterrupt
                self.left -= 1
                self.seen.append(progress.label)
            original(lines, progress)

        monkeypatch.setattr(Lines, "__call__", report)


def runs_of(out: Path) -> list[str]:
    """Return the run of every record in a folder."""
    return [record["run"] for record in lines(out / "records.jsonl")]
