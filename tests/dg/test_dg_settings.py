import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from efdm.dg.methods import METHODS
from efdm.dg.settings import Settings
from efdm.errors import RunFolderError, SettingError
from efdm.recognition.settings import identity, resolved, run_label
from efdm.training.files import write_json
from efdm.training.settings import check_same_run, public, read_settings

PLAIN = Settings("pacs", ("art", "photo"), ("sketch",))
# another value for each setting
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
    PLAIN.check()


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_mix_need_a_second_sample_or_domain(method: str) -> None:
    own = dataclasses.replace(PLAIN, method=method, batches=METHODS[method].batches)
    dataclasses.replace(own, batch=2).check()
    lonely = dataclasses.replace(own, batch=1)
    if method in ("erm", "cutout", "dropblock"):  # change each image independently
        lonely.check()
    else:
        with pytest.raises(ValueError, match="batch must be at least 2"):
            lonely.check()
    one_domain = dataclasses.replace(own, train_domains=("art",), domains_per_batch=1)
    if METHODS[method].batches == "domains":
        with pytest.raises(ValueError, match="at least 2 training domains, got 1"):
            one_domain.check()
    else:
        one_domain.check()


THREE = ("art", "photo", "cartoon")


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_pair_domains_need_suitable_batches(method: str) -> None:
    """Halves need batches of two domains; labels need two or more."""
    own = dataclasses.replace(PLAIN, method=method, train_domains=THREE, batch=96)
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"batches": "uniform"}, {"halves"}),
        ({"batches": "domains", "domains_per_batch": 1}, {"halves", "labels"}),
        ({"batches": "domains", "domains_per_batch": 2}, set()),
        ({"batches": "domains", "domains_per_batch": "all"}, {"halves"}),
    ]
    for changes, refused in cases:
        wanted = dataclasses.replace(own, **changes)
        if refused & {*method.split("-"), *(["labels"] if method == "coral" else [])}:
            with pytest.raises(SettingError, match=rf"{method} needs batches of .*2 domains"):
                wanted.check()
        else:
            wanted.check()


def test_settings_survive_a_file(tmp_path: Path) -> None:
    wanted = dataclasses.replace(PLAIN, method="efdmix", options={"p": 0.3}, stages=("stage1",))
    write_json(tmp_path / "settings.json", dataclasses.asdict(wanted))
    assert read_settings(Settings, tmp_path) == wanted


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda f: f.name)
def test_only_device_speed_and_intervals_keep_the_identity(field: Any, tmp_path: Path) -> None:
    began = dataclasses.replace(PLAIN, method="erm")
    other = dataclasses.replace(began, **{field.name: OTHER[field.name]})
    if field.name == "options":
        began = dataclasses.replace(PLAIN, method="efdmix")
        other = dataclasses.replace(began, options={"p": 0.3})
    assert (identity(other) == identity(began)) == (field.name in Settings.movable)
    write_json(tmp_path / "settings.json", dataclasses.asdict(began))
    if field.name in (*Settings.movable, *Settings.files):
        check_same_run(other, tmp_path)
        return
    with pytest.raises(RunFolderError, match=f"was started with .*{field.name}="):
        check_same_run(other, tmp_path)


def test_an_identity_does_not_depend_on_spelled_out_defaults_and_folders() -> None:
    mixed = dataclasses.replace(PLAIN, method="efdmix")
    assert len(identity(mixed)) == 12
    assert identity(dataclasses.replace(mixed, options={"alpha": 0.1, "p": 0.5})) == identity(mixed)  # the defaults
    assert identity(dataclasses.replace(mixed, stages=list(mixed.stages))) == identity(mixed)
    here, there = (dataclasses.replace(mixed, weights=f"{place}/a.pth") for place in ("/here", "there"))
    assert identity(here) == identity(there) != identity(mixed)


@pytest.mark.parametrize(("began", "goes_on"), [({}, {"p": 0.5}), ({"alpha": 0.1, "p": 0.5}, {})])
def test_spelled_out_default_options_are_the_same_run(
    began: dict[str, Any], goes_on: dict[str, Any], tmp_path: Path
) -> None:
    first, second = (dataclasses.replace(PLAIN, method="efdmix", options=options) for options in (began, goes_on))
    assert resolved(first) == resolved(second)
    assert public(resolved(first))["options"] == {"p": 0.5, "alpha": 0.1}
    assert identity(resolved(first)) == identity(first) == identity(second)
    write_json(tmp_path / "settings.json", dataclasses.asdict(first))
    check_same_run(second, tmp_path)
    check_same_run(resolved(second), tmp_path)
    with pytest.raises(RunFolderError, match=r"options=.*'p': 0\.5.*, not .*'p': 0\.3"):
        check_same_run(dataclasses.replace(second, options={"p": 0.3}), tmp_path)
    with pytest.raises(RunFolderError, match="method='efdmix', not 'erm'"):
        check_same_run(dataclasses.replace(first, method="erm"), tmp_path)


def test_weights_files_are_identified_by_their_content(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    a, b, c = (resolved(dataclasses.replace(PLAIN, weights=str(tmp_path / n / "model.safetensors"))) for n in "abc")
    assert identity(a) == identity(c) != identity(b)
    assert public(a)["weights_sha256"] == hashlib.sha256(b"one").hexdigest()[:12]
    write_json(tmp_path / "settings.json", dataclasses.asdict(a))
    check_same_run(c, tmp_path)
    with pytest.raises(ValueError, match=r"weights_sha256='\w+', not '\w+'"):
        check_same_run(b, tmp_path)
    with pytest.raises(ValueError, match="weights_sha256"):
        check_same_run(PLAIN, tmp_path)
    Path(a.weights).write_bytes(b"three")
    assert resolved(a).weights_sha256 != a.weights_sha256
    Path(a.weights).unlink()
    assert resolved(a) == a, "the stored checksum"
    assert resolved(dataclasses.replace(a, weights="timm")).weights_sha256 == ""


def test_a_label_is_short_and_unique() -> None:
    assert run_label(PLAIN) == f"erm, tested on sketch, seed 0 [{identity(PLAIN)[:6]}]"
    single = dataclasses.replace(PLAIN, train_domains=("art",), test_domains=("photo", "sketch"), seed=3)
    assert run_label(single).startswith("erm, trained on art, seed 3 [")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efdmx"}, "method='efdmx' is not one of .*did you mean 'efdmix'"),
        ({"method": "efdmix", "options": {"beta": 1}}, "has no option 'beta'"),
        ({"method": "efdmix", "options": {"p": "half"}}, "option p of efdmix must be of type float, got 'half'"),
        ({"method": "efdmix", "options": {"p": None}}, "option p of efdmix must be of type float, got None"),
        ({"method": "mixup", "options": {"alpha": None}}, "option alpha of mixup must be of type float, got None"),
        ({"method": "dropblock", "options": {"block": 3.5}}, "option block of dropblock must be of type int"),
        ({"precision": "fp16"}, "precision must be 'fp32', 'bf16' or 'fp64', got 'fp16'$"),
        ({"schedule": "cosin"}, "schedule must be .*'cosine'.*, got 'cosin'"),
        ({"augmentation": "all"}, "augmentation='all' is not one of"),
        ({"train_domains": ()}, "train_domains must have at least 1 item"),
        ({"test_domains": ("sketch", "art")}, "art cannot be both"),
        ({"method": "efdmix", "options": {"p": 5}}, r"\bp=?.*5"),
        ({"lr": math.nan}, "lr must be a finite number, got nan"),
        ({"lr": -0.1}, r"lr must be greater than or equal to 0, got -0\.1"),
        ({"momentum": 1.0}, r"momentum must be less than 1, got 1\.0"),
        ({"batch": "64"}, "batch must be a valid integer, got '64'"),
        ({"stages": 1}, "stages must be a valid tuple, got 1"),
        ({"batches": "domains", "domains_per_batch": 3}, "domains_per_batch must be at most 2.*got 3"),
        ({"domains_per_batch": "two"}, "domains_per_batch must be .*got 'two'"),
        ({"batches": "domains", "batch": 33}, "batch must be a multiple of the 2 domains in it, got 33"),
        ({"colour": 1}, "has no setting 'colour'"),
    ],
    ids=str,
)
def test_wrong_settings_are_reported_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Settings(**{**dataclasses.asdict(PLAIN), **changes}).check()


@pytest.mark.parametrize(
    ("method", "options"),
    [("efdmix", {"p": 5}), ("distribution-noise", {"draws": "all"}), ("coral", {"gamma": -1.0}), ("mixup", {"p": "half"})],
)
def test_the_error_of_an_option_names_the_setting_that_holds_it(method: str, options: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as caught:
        dataclasses.replace(PLAIN, method=method, options=options).check()
    assert caught.value.settings == ("options",)


def test_no_alpha_exchanges_whole_distributions() -> None:
    mixed = dataclasses.replace(PLAIN, method="efdmix")
    exchanged = dataclasses.replace(mixed, options={"alpha": None})
    exchanged.check()
    assert identity(exchanged) != identity(mixed)


def test_paths_devices_lists_and_whole_numbers_are_converted() -> None:
    dataclasses.replace(PLAIN, lr=1, method="efdmix", options={"p": 1}).check()
    path = dataclasses.replace(PLAIN, weights=Path("here/w.pth"), device=torch.device("cpu"), stages=["stage1"])
    assert (path.weights, path.device, path.stages) == (str(Path("here/w.pth")), "cpu", ("stage1",))
    assert dataclasses.replace(PLAIN, stages="stage1").stages == ("stage1",)


def test_a_misspelt_name_is_reported_before_the_setting_it_leaves_out() -> None:
    with pytest.raises(SettingError, match=r"no setting 'train_domain'; did you mean 'train_domains'"):
        Settings(train_domain=("photo",), test_domains=("sketch",))  # type: ignore[call-arg]
