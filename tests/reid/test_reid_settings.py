import dataclasses
from pathlib import Path
from typing import Any

import pytest

from efdm.recognition.settings import identity
from efdm.reid.settings import METHODS, Settings
from efdm.training.files import write_json
from efdm.training.settings import read_settings

PLAIN = Settings("market1501", ("market1501",), ("grid",))


def test_the_defaults_are_the_papers() -> None:
    """OSNet after conv2 and conv3 of 256 x 128 pixels; rates of 0.05 for the classifier and 0.01 for the other layers."""
    PLAIN.check()
    assert (PLAIN.backbone, PLAIN.stages, PLAIN.size) == ("osnet_x1_0", ("conv2", "conv3"), (256, 128))
    assert (PLAIN.label_smoothing, PLAIN.triplet_weight, PLAIN.batches) == (0.1, 0.0, "uniform")
    assert (PLAIN.optimizer, PLAIN.batch, PLAIN.momentum, PLAIN.weight_decay) == ("sgd", 32, 0.9, 1e-5)
    assert (PLAIN.lr, PLAIN.lr * PLAIN.classifier_lr) == (0.01, 0.05)


def test_settings_survive_a_file(tmp_path: Path) -> None:
    wanted = dataclasses.replace(PLAIN, method="efdmix", protocols={"grid": "official"}, augmentation=["flip", "erase"])
    write_json(tmp_path / "settings.json", dataclasses.asdict(wanted))
    assert read_settings(Settings, tmp_path) == wanted
    assert identity(wanted) != identity(PLAIN)


def test_methods_are_the_baseline_and_the_feature_layers() -> None:
    assert [name for name, row in METHODS.items() if not row.inserts_layers()] == ["erm"]
    for name in METHODS:
        batches = "domains" if "halves" in name else "uniform"
        dataclasses.replace(PLAIN, method=name, batches=batches).check()
    # the data may have two cameras
    dataclasses.replace(PLAIN, method="efdmix-halves", batches="domains", domains_per_batch="all").check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efdmx"}, "method='efdmx' is not one of .*did you mean 'efdmix'"),
        ({"method": "efdmix", "options": {"p": 5}}, r"\bp\b.*5"),
        ({"method": "efdmix", "batch": 1}, "batch must be at least 2, got 1"),
        ({"method": "efdmix-halves"}, "needs batches of 2 domains"),
        ({"method": "efdmix-labels", "domain_labels": "datasets"}, "needs at least 2 training domains, got 1"),
        ({"protocols": {"grid": "oficial"}}, "protocols='oficial' is not one of .*did you mean 'official'"),
        ({"protocols": {"market": "official"}}, "'market', which is not a test domain"),
        ({"train_domains": ("grid",), "protocols": {"grid": "person-camera"}}, "the training pictures of grid"),
        ({"batches": "people", "batch": 30}, "multiple of instances=4"),
        ({"triplet_weight": 1.0}, "batches='people'"),
        ({"triplet_weight": 1.0, "batches": "people", "instances": 1}, "instances >= 2"),
        ({"optimizer": "adam"}, r"classifier_lr=5\.0 needs optimizer='sgd'"),
        ({"augmentation": ("flip", "mirror")}, "augmentation .*'mirror'"),
        ({"size": 256}, "size must be a valid tuple, got 256"),
        ({"size": (256, 0)}, "size"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be less than 1, got 1\.0"),
        ({"domain_labels": "people"}, "domain_labels must be .*got 'people'"),
    ],
    ids=str,
)
def test_wrong_settings_are_reported_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**{**dataclasses.asdict(PLAIN), **changes}).check()
