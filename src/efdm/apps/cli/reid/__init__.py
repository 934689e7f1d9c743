"""``efdm reid``: person re-identification. One module per command."""

from __future__ import annotations

from collections.abc import Mapping

from efdm.apps.cli.group import Command, lazy_app

COMMANDS: Mapping[str, Command] = {
    name: Command(f"efdm.apps.cli.{module}", text, "reid")
    for name, module, text in (
        ("train", "reid.train", "Train a network on pictures of people."),
        ("test", "reid.test", "Measure mAP and CMC of a trained network."),
        ("search", "reid.search", "Search pictures for people and draw the ranked results."),
        ("run", "reid.run", "Train all runs of a recipe and print its tables."),
        ("table", "dg.table", "Print or write the tables of a run."),
        ("list", "reid.list", "List recipes, methods, backbones, protocols and layouts."),
    )
}

app = lazy_app("Re-identification: find people in the pictures of other cameras.", COMMANDS)
