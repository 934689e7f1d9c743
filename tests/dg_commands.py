"""What tests of `efdm dg` have in common: its commands, small pictures and a small recipe. Skips without typer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("typer")

from typer.testing import CliRunner

from efdm.apps import dg_show
from efdm.apps.cli.group import app
from efdm.data import write_picture

runner = CliRunner()

RECIPE = '''"""A small one.

claim     nothing
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


def run(*arguments: object, width: int = 200, **environment: str):
    return runner.invoke(app, ["dg", *map(str, arguments)], env={"COLUMNS": str(width), **environment})


def draw(folder: Path, domains: tuple[str, ...], classes: tuple[str, ...], count: int = 6) -> Path:
    """Noise of a colour for each class."""
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
    """Ctrl-C after some news of a training."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left, self.seen = after, list[str]()
        usual = dg_show.Bars.step

        def step(bars: dg_show.Bars, told: Any) -> None:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            self.seen.append(told.run)
            usual(bars, told)

        monkeypatch.setattr(dg_show.Bars, "step", step)


def runs_of(out: Path) -> list[str]:
    return [json.loads(line)["run"] for line in (out / "records.jsonl").read_text().splitlines()]
