from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
import torch

pytest.importorskip("typer")

import typer
from rich.console import Console

from efdm.apps import dg_open
from efdm.data.datasets import DIGITS, load_dataset
from efdm.dg.protocols import check_unseen


def test_settings_are_read_by_their_kind() -> None:
    told = ["lr=1", "stages=layer1, layer2", 'options={"alpha": 0.3}', "weights=3", "domains_per_batch=all", "batch=8"]
    assert dg_open.changes(told) == {
        "lr": 1, "stages": ("layer1", "layer2"), "options": {"alpha": 0.3}, "weights": "3", "domains_per_batch": "all",
        "batch": 8,
    }  # fmt: skip
    assert dg_open.changes(["options.p=1", "options.ties=stable"]) == {"options": {"p": 1, "ties": "stable"}}
    with pytest.raises(ValueError, match="as JSON"):
        dg_open.changes(["options=3"])
    assert dg_open.seeds("3") == [0, 1, 2]
    assert dg_open.seeds("3,1,3") == [3, 1]


def test_what_suits_a_device_goes_behind_what_a_recipe_says() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 1)
    assert dg_open.suited(cpu, {"speed": "compile"}) == {"device": "cpu", "precision": "fp32", "log_every": 10}
    assert dg_open.suited(cuda, {}) == {"device": "cuda:1", "precision": "bf16", "speed": "graph"}
    assert dg_open.suited(cuda, {"precision": "fp32"}, trainings="many")["speed"] in ("graph", "compile+graph")


def test_classes_of_several_domains_are_told_by_the_odd_one() -> None:
    pytest.importorskip("sklearn")
    some = load_dataset(DIGITS, [], 16)
    assert dg_open.uneven_classes(some, some.domain_names) == []
    first, second, *_ = some.domain_names
    without = some.subset(((some.domains != 0) | (some.labels > 1)).nonzero()[:, 0])
    assert dg_open.uneven_classes(without, some.domain_names) == [f"{first} has no 0, 1"]
    alone = some.subset(((some.domains == 1) | (some.labels < 9)).nonzero()[:, 0])
    assert dg_open.uneven_classes(alone, some.domain_names) == [f"only {second} has 9"]
    two = some.subset(((some.domains < 2) | (some.labels < 9)).nonzero()[:, 0])
    assert dg_open.uneven_classes(two, some.domain_names, [first, second]) == [f"only {first}, {second} have 9"]


def test_a_copy_of_pacs_without_held_out_pictures_is_sent_to_the_option() -> None:
    pytest.importorskip("sklearn")
    data = load_dataset(DIGITS, [], 16)
    bare = {domain: {**parts, "val": parts["val"][:0]} for domain, parts in data.splits.items()}
    with pytest.raises(typer.Exit), dg_open.sentences(console := Console(file=StringIO(), width=200), str):
        check_unseen(replace(data, splits=bare))
    assert "split off a share (of PACS: --split own)" in console.file.getvalue()
