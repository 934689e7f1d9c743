"""Training on datasets of torch, and on pictures that are read when they are needed."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from dg_runs import settings, small_digits
from runs import Watch, weights, without_clock
from torch.utils.data import DataLoader, TensorDataset

from efdm.data import from_datasets
from efdm.data.domains import DomainSet, StreamedImages, batches_of
from efdm.dg import count_correct, predict
from efdm.dg.training import train
from efdm.errors import SettingError

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return small_digits(30)


def datasets(data: DomainSet) -> dict[str, TensorDataset]:
    return {d: TensorDataset(data.images[at := data.select(d)], data.labels[at]) for d in data.domain_names}


def streamed(data: DomainSet) -> DomainSet:
    images = StreamedImages(range(len(data)), lambda at: data.images[at], data.images.shape[-1])
    return dataclasses.replace(data, images=images)


def test_datasets_and_loaders_train_like_their_pictures(data: DomainSet) -> None:
    own = datasets(data)
    loaders = {domain: DataLoader(dataset, 7, shuffle=True) for domain, dataset in own.items()}
    expected = train(settings(iterations=2, evaluate_every=0), from_datasets(own, size=32))
    for given in (own, loaders):
        found = train(settings(iterations=2, evaluate_every=0), given)
        assert torch.equal(weights(found), weights(expected))
        assert found.classes == [str(digit) for digit in range(10)]
    counts = expected.records[-1]["test"]["outline"]
    assert counts[1] == 30


def test_invalid_settings_are_refused_before_pictures_are_read(data: DomainSet) -> None:
    with pytest.raises(SettingError, match="no-such"):
        train(settings(method="no-such"), datasets(data), progress=lambda _: pytest.fail("read a picture"))


def test_streamed_pictures_train_like_pictures_in_memory(data: DomainSet, tmp_path: Path) -> None:
    """Also if the run is interrupted and resumed, in memory this time."""
    wanted: Any = settings(method="efdmix-labels")
    expected = train(wanted, data)
    assert torch.equal(weights(train(wanted, streamed(data))), weights(expected))
    with pytest.raises(KeyboardInterrupt):
        train(wanted, streamed(data), tmp_path / "run", progress=Watch(4))
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert torch.equal(weights(found), weights(expected))
    assert [{**r, "environment": 0} for r in without_clock(found.records)] == [
        {**r, "environment": 0} for r in without_clock(expected.records)
    ]
    images = data.images[:5]
    assert torch.equal(
        predict(found.model, streamed(data.subset(torch.arange(5))).images, 32), predict(found.model, images, 32)
    )


def test_own_augmentations_are_applied_in_training_only(data: DomainSet) -> None:
    wanted = settings(iterations=2, evaluate_every=0)
    inverted = train(wanted, dataclasses.replace(data, images=255 - data.images))
    own = streamed(data)
    own = dataclasses.replace(own, images=dataclasses.replace(own.images, augment=lambda picture: 255 - picture))
    found = train(wanted, own)
    assert torch.equal(weights(found), weights(inverted))
    expected = count_correct(found.model, data, data.select("outline", "test"), 32)
    assert found.records[-1]["test"]["outline"] == list(expected)
    ((_, pictures),) = batches_of(own.images, [torch.tensor([3, 5])])
    assert torch.equal(pictures, data.images[[3, 5]])


def test_a_set_larger_than_the_memory_of_the_device_is_refused(data: DomainSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.data.memory.available_memory", lambda device: data.images.nbytes - 1)
    with pytest.raises(SettingError, match="120 pictures of 32 pixels need"):
        data.to("meta")
    streamed(data).to("meta")
    data.to("cpu")  # no copy
