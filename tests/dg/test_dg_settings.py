from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from efdm.dg.methods import METHODS
from efdm.dg.protocols import PROTOCOLS
from efdm.dg.settings import (
    FILES,
    MOVABLE,
    SCHEDULES,
    Settings,
    check,
    check_same_run,
    identity,
    public,
    read_settings,
    resolved,
)
from efdm.training.files import write_json

PLAIN = Settings("pacs", ("art", "photo"), ("sketch",))
# for each setting another value
OTHER: dict[str, Any] = {
    "data": "other", "train_domains": ("art",), "test_domains": (), "method": "efdmix", "options": {}, "backbone": "tiny",
    "weights": "/somewhere/else.safetensors", "weights_sha256": "0123456789ab", "stages": ("stage1",),
    "iterations": 7, "batch": 32, "batches": "domains",
    "domains_per_batch": "all", "optimizer": "adam", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.0,
    "schedule": "constant", "augmentation": "none", "size": 32, "batchnorm": "frozen", "seed": 1, "precision": "fp32",
    "speed": "plain", "device": "cpu", "evaluate_every": 5, "save_every": 5, "log_every": 5,
}  # fmt: skip


def test_the_defaults_are_the_papers() -> None:
    found = (PLAIN.batch, PLAIN.optimizer, PLAIN.lr, PLAIN.momentum, PLAIN.weight_decay, PLAIN.schedule, PLAIN.size)
    assert found == (64, "sgd", 1e-3, 0.9, 5e-4, "cosine", 224)
    check(PLAIN)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_would_find_nobody_to_mix_with_is_refused(method: str) -> None:
    own = dataclasses.replace(PLAIN, method=method, batches=METHODS[method].batches)
    check(dataclasses.replace(own, batch=2))
    lonely = dataclasses.replace(own, batch=1)
    if method in ("erm", "cutout", "dropblock"):  # each picture by itself
        check(lonely)
    else:
        with pytest.raises(ValueError, match="give a batch of at least 2"):
            check(lonely)
    one_domain = dataclasses.replace(own, train_domains=("art",), domains_per_batch=1)
    if METHODS[method].batches == "domains":
        with pytest.raises(ValueError, match=r"art is the only one .* choose (mixstyle|efdmix),"):
            check(one_domain)
    else:
        check(one_domain)


THREE = ("art", "photo", "cartoon")


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_refused_where_its_batches_are_not_what_its_pairs_are_made_from(method: str) -> None:
    """Halves want exactly one domain in each; labels find partners in any batch of two domains or more."""
    own = dataclasses.replace(PLAIN, method=method, train_domains=THREE, batch=96)
    cases: dict[str, tuple[dict[str, Any], set[str]]] = {
        "these are mixed at random": ({"batches": "uniform"}, {"halves"}),
        "these are of 1": ({"batches": "domains", "domains_per_batch": 1}, {"halves", "labels"}),
        "nothing": ({"batches": "domains", "domains_per_batch": 2}, set()),
        "these are of 3": ({"batches": "domains", "domains_per_batch": "all"}, {"halves"}),
    }
    for sentence, (changes, refused) in cases.items():
        wanted = dataclasses.replace(own, **changes)
        if refused & set(method.split("-")):
            with pytest.raises(ValueError, match=rf"{method} needs .*2 domains .*{sentence}; .*choose (mixstyle|efdmix),"):
                check(wanted)
        else:
            check(wanted)


def test_pairs_of_halves_are_refused_under_domainbed() -> None:
    protocol = PROTOCOLS["domainbed"]
    cell = protocol.cells((*THREE, "sketch"))[-1]
    fixed = dataclasses.replace(PLAIN, train_domains=cell.train, test_domains=cell.test, **protocol.settings_for(cell))
    check(dataclasses.replace(fixed, method="efdmix-labels"))
    with pytest.raises(ValueError, match="efdmix-halves needs batches of 2 domains in equal parts, and these are of 3"):
        check(dataclasses.replace(fixed, method="efdmix-halves"))


def test_settings_survive_a_file(tmp_path: Path) -> None:
    wanted = dataclasses.replace(PLAIN, method="efdmix", options={"p": 0.3}, stages=("stage1",))
    write_json(tmp_path / "settings.json", dataclasses.asdict(wanted))
    assert read_settings(tmp_path) == wanted


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda f: f.name)
def test_another_setting_is_another_run_unless_it_only_says_where(field: Any, tmp_path: Path) -> None:
    began = dataclasses.replace(PLAIN, method="erm")
    other = dataclasses.replace(began, **{field.name: OTHER[field.name]})
    if field.name == "options":
        began = dataclasses.replace(PLAIN, method="efdmix")
        other = dataclasses.replace(began, options={"p": 0.3})
    assert (identity(other) == identity(began)) == (field.name in MOVABLE)
    write_json(tmp_path / "settings.json", dataclasses.asdict(began))
    if field.name in (*MOVABLE, *FILES):
        check_same_run(other, tmp_path)
        return
    with pytest.raises(ValueError, match=f"began with {field.name} .*; resume it with its own settings"):
        check_same_run(other, tmp_path)


def test_an_identity_is_short_and_does_not_depend_on_how_it_is_said() -> None:
    mixed = dataclasses.replace(PLAIN, method="efdmix")
    assert len(identity(mixed)) == 12
    assert identity(dataclasses.replace(mixed, options={"alpha": 0.1, "p": 0.5})) == identity(mixed)  # the defaults
    assert identity(dataclasses.replace(mixed, stages=list(mixed.stages))) == identity(mixed)
    here, there = (dataclasses.replace(mixed, weights=f"{place}/a.pth") for place in ("/here", "there"))
    assert identity(here) == identity(there) != identity(mixed)


@pytest.mark.parametrize("began", [{}, {"p": 0.5}, {"alpha": 0.1, "p": 0.5}])
@pytest.mark.parametrize("goes_on", [{}, {"p": 0.5}])
def test_a_default_that_was_written_down_is_the_same_run(
    began: dict[str, Any], goes_on: dict[str, Any], tmp_path: Path
) -> None:
    """Also where an older run did not write down the others."""
    first, second = (dataclasses.replace(PLAIN, method="efdmix", options=options) for options in (began, goes_on))
    assert resolved(first) == resolved(second)
    assert public(resolved(first))["options"] == {"p": 0.5, "alpha": 0.1}
    assert identity(resolved(first)) == identity(first) == identity(second)
    write_json(tmp_path / "settings.json", dataclasses.asdict(first))
    check_same_run(second, tmp_path)
    check_same_run(resolved(second), tmp_path)
    with pytest.raises(ValueError, match=r"began with options .*'p': 0\.5.*, not .*'p': 0\.3"):
        check_same_run(dataclasses.replace(second, options={"p": 0.3}), tmp_path)
    with pytest.raises(ValueError, match="began with method efdmix, not erm; "):
        check_same_run(dataclasses.replace(first, method="erm"), tmp_path)


def test_files_of_one_name_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    a, b, c = (resolved(dataclasses.replace(PLAIN, weights=str(tmp_path / n / "model.safetensors"))) for n in "abc")
    assert identity(a) == identity(c) != identity(b)
    assert public(a)["weights_sha256"] == hashlib.sha256(b"one").hexdigest()[:12]
    write_json(tmp_path / "settings.json", dataclasses.asdict(a))
    check_same_run(c, tmp_path)
    with pytest.raises(ValueError, match=r"began with weights_sha256 \w+, not \w+;"):
        check_same_run(b, tmp_path)
    with pytest.raises(ValueError, match="began with weights_sha256"):
        check_same_run(PLAIN, tmp_path)


def test_a_checksum_is_that_of_the_file_as_long_as_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(b"one")
    first = resolved(dataclasses.replace(PLAIN, weights=str(path)))
    path.write_bytes(b"another")
    second = resolved(first)
    assert second.weights_sha256 != first.weights_sha256
    path.unlink()
    assert resolved(first) == first
    assert resolved(dataclasses.replace(first, weights="timm")).weights_sha256 == ""
    assert resolved(PLAIN) == PLAIN


def test_what_is_passed_on_tells_no_folders() -> None:
    told = public(dataclasses.replace(PLAIN, weights="/home/someone/weights.pth"))
    assert told["weights"] == "weights.pth"
    assert "someone" not in json.dumps(told)
    assert public(PLAIN)["weights"] == "random"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efdmx"}, "method='efdmx' is not one of .*did you mean 'efdmix'"),
        ({"method": "efdmix", "options": {"beta": 1}}, "has no option 'beta'; it takes p, alpha"),
        ({"schedule": "step"}, "schedule='step' is not one of"),
        ({"batchnorm": "eval"}, "batchnorm='eval' is not one of 'train', 'frozen'"),
        ({"augmentation": "all"}, "augmentation='all' is not one of"),
        ({"train_domains": ()}, "train_domains is empty"),
        ({"test_domains": ("sketch", "art")}, "art would be learnt from and tested"),
        ({"iterations": 0}, "iterations is 0; give at least 1"),
        ({"method": "efdmix", "options": {"p": 5}}, "p must be .* got 5"),
        ({"method": "mixup", "options": {"alpha": -1}}, "alpha=-1 "),
        ({"method": "manifold-mixup", "options": {"p": -1}}, "p must be .* got -1"),
        ({"method": "dropblock", "options": {"block": 0}}, "block=0 must be a whole number"),
        ({"lr": math.nan}, "lr is nan; give a number of at least 0, and a finite one"),
        ({"lr": math.inf}, "lr is inf; "),
        ({"lr": -0.1}, r"lr is -0\.1; "),
        ({"momentum": 1.0}, r"momentum is 1\.0; give a number of at least 0 and below 1"),
        ({"weight_decay": -1e-4}, "weight_decay is -0.0001; "),
        ({"batches": "domains", "domains_per_batch": 3}, "domains_per_batch is 3 and there are 2 training domains"),
        ({"batches": "domains", "domains_per_batch": "two"}, "domains_per_batch='two'; give a number, or 'all'"),
        ({"batches": "domains", "batch": 33}, "multiple of 2"),
        (
            {"batches": "domains", "domains_per_batch": "all", "train_domains": ("art", "photo", "cartoon")},
            "multiple of 3",
        ),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_done(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        check(dataclasses.replace(PLAIN, **changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lr": "fast"}, "lr is 'fast'; give a number, such as 0.001"),
        ({"lr": None}, "lr is None; give a number"),
        ({"batch": "64"}, "batch is '64'; give a whole number, such as 64"),
        ({"iterations": 1e0}, "iterations is 1.0; give a whole number, such as 5000"),
        ({"evaluate_every": 0.5}, "evaluate_every is 0.5; give a whole number"),
        ({"save_every": True}, "save_every is True; give a whole number"),
        ({"backbone": 18}, "backbone is 18; give a string, such as 'resnet18'"),
        ({"stages": "layer1"}, "stages is 'layer1'; give a tuple of strings, such as ('stage1', "),
        ({"stages": ("layer1", 2)}, "stages is ('layer1', 2); give a tuple of strings"),
        ({"test_domains": "sketch"}, "test_domains is 'sketch'; give a tuple of strings"),
        ({"domains_per_batch": 2.0}, "domains_per_batch is 2.0; give a whole number or a string, such as 2"),
        ({"options": 0.5}, "options is 0.5; give a mapping"),
        ({"method": "efdmix", "options": {"p": "half"}}, "p is 'half'; give a number, such as 0.5"),
        ({"method": "dropblock", "options": {"block": 3.5}}, "block is 3.5; give a whole number, such as 7"),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_is_told_with_its_name_and_what_to_give(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        check(dataclasses.replace(PLAIN, **changes))


def test_values_that_say_the_same_are_taken() -> None:
    check(dataclasses.replace(PLAIN, lr=1, method="efdmix", options={"p": 1}))
    path = dataclasses.replace(PLAIN, weights=Path("here/w.pth"), device=torch.device("cpu"))
    assert path == dataclasses.replace(PLAIN, weights=str(Path("here/w.pth")), device="cpu")


def test_schedules_begin_with_all_of_the_rate() -> None:
    for schedule in SCHEDULES.values():
        assert schedule(0, 100) == 1
        values = [schedule(i, 100) for i in range(100)]
        assert values == sorted(values, reverse=True)
    assert SCHEDULES["cosine"](50, 100) == pytest.approx(0.5)
    assert SCHEDULES["cosine"](99, 100) < 1e-3
    # the authors' had 79 different values and never came to its end
    assert SCHEDULES["authors"](10**6 - 1, 10**6) == pytest.approx(0.4686, abs=0.001)
    assert len({SCHEDULES["authors"](i, 5100) for i in range(5100)}) == 79
