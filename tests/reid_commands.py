"""Helpers for tests of `efdm reid`: the commands, and options that make runs small. Skips without typer."""

from functools import partial
from pathlib import Path

from commands import invoke

TINY = ["--device", "cpu", "--set", "backbone=tiny", "--set", "stages=stage1", "--set", "batch=4", "--iterations", "2"]
SMALL = [*TINY, "--set", "size=32,16"]


run = partial(invoke, "reid")


def sets(folder: Path, *names: str, option: str = "--data") -> list[str]:
    return [word for name in names for word in (option, f"{name}={folder / name}")]


def training(folder: Path, out: Path, *more: object) -> list[object]:
    """Return the words of a small run on Market-1501."""
    return ["train", *sets(folder, "market"), "-o", out, *SMALL, *more]


def sweeping(recipe: str, folder: Path, out: Path, *more: object) -> list[object]:
    """Return the words of a small sweep with two methods and one seed."""
    names = recipe.split("_")[1:3]
    small = ["--weights", "random", "--seeds", "1", "--methods", "erm,efdmix", *SMALL]
    return ["run", recipe, *sets(folder, *names), "-o", out, *small, *more]
