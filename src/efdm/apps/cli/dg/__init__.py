"""``efdm dg``: domain generalization. One module per command."""

from __future__ import annotations

from collections.abc import Mapping

from efdm.apps.cli.group import Command, lazy_app

COMMANDS: Mapping[str, Command] = {
    name: Command(f"efdm.apps.cli.dg.{name}", text, "dg")
    for name, text in {
        "demo": "Compare three methods on digits in four styles. Needs no download.",
        "train": "Train one classifier on your own pictures.",
        "predict": "Predict classes and their probabilities.",
        "run": "Train all runs of a recipe and print its tables.",
        "table": "Print or write the tables of a run.",
        "analyse": "Analyse the features of a trained classifier.",
        "list": "List recipes, methods and backbones.",
    }.items()
}

app = lazy_app("Domain generalization: train classifiers for domains that they have not seen.", COMMANDS)
