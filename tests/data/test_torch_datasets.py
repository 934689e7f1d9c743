"""Datasets of torch and torchvision as sets of domains."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from efdm.data import from_datasets, load_domains, memory
from efdm.data.domains import batches_of
from efdm.errors import SettingError


class Grays(Dataset[Any]):
    """Pictures of one gray each: item i has gray ``first + i`` and label ``i % 3``."""

    def __init__(self, first: int, count: int = 6, change: Any = lambda picture: picture) -> None:
        self.first, self.count, self.change, self.read = first, count, change, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.read += 1
        return self.change(Image.new("RGB", (9, 7), (self.first + index,) * 3)), index % 3


def tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


FORMS = {
    "PIL": lambda picture: picture,
    "PIL, gray": lambda picture: picture.convert("L"),
    "array": np.array,
    "read-only array": np.asarray,
    "uint8": tensor,
    "float": lambda picture: tensor(picture) / 255,  # as of ToTensor
    "float, gray": lambda picture: tensor(picture)[:1].double() / 255,
}


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
@pytest.mark.parametrize("storage", ["memory", "stream"])
@pytest.mark.parametrize("form", FORMS)
def test_pictures_of_every_form(form: str, storage: Any) -> None:
    data = from_datasets({"b": Grays(10, 6, FORMS[form]), "a": Grays(50, 3, FORMS[form])}, size=4, storage=storage)
    assert (len(data), data.domain_names, data.classes) == (9, ["b", "a"], ["0", "1", "2"])
    pictures = data.images[torch.arange(9)]
    assert (pictures.dtype, tuple(pictures.shape)) == (torch.uint8, (9, 3, 4, 4))
    assert (pictures == pictures[:, :1, :1, :1]).all()
    assert pictures[:, 0, 0, 0].tolist() == [*range(10, 16), *range(50, 53)]
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert data.domains.tolist() == [0] * 6 + [1] * 3
    assert data.names[4] == "b/1/4"


def test_one_dataset_that_names_the_domain_of_each_item() -> None:
    pictures, labels, domains = torch.rand(8, 3, 4, 4), torch.arange(8) % 2, torch.arange(8) // 4
    data = from_datasets(TensorDataset(pictures, labels, domains), size=4, classes=["cat", "dog"])
    assert (data.domain_names, data.classes) == (["0", "1"], ["cat", "dog"])
    assert torch.equal(data.domains, domains)
    assert torch.equal(data.labels, labels)
    named = [(p, n, "ab"[d]) for p, n, d in zip(pictures, labels, domains, strict=True)]  # a list is a dataset
    assert from_datasets(named, size=4).domain_names == ["a", "b"]


def test_a_share_of_each_class_is_held_out() -> None:
    data = from_datasets({"a": Grays(0, 30), "b": Grays(60, 30)}, size=2, split=0.2)
    assert data.counts("split") == {d: {"train": 24, "val": 6, "test": 30} for d in "ab"}
    assert from_datasets({"a": Grays(0, 30), "b": Grays(60, 30)}, size=2, split=0.2).fingerprint() == data.fingerprint()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("a/cat", "a/dog", "b/cat", "b/owl")):
        (tmp_path / name).mkdir(parents=True)
        for index in range(4):
            Image.new("RGB", (6, 6), (10 * number + index, 0, 0)).save(tmp_path / name / f"{index}.png")
    return tmp_path


@pytest.mark.parametrize("storage", ["memory", "stream"])
def test_image_folders_have_the_pictures_and_classes_of_load_domains(folder: Path, storage: Any) -> None:
    """Labels of both folders are 0 and 1, but label 1 is another class in each."""
    folders = pytest.importorskip("torchvision.datasets")
    with pytest.warns(UserWarning, match="a has no owl; b has no dog"):
        data = from_datasets({d: folders.ImageFolder(str(folder / d)) for d in "ab"}, size=6, storage=storage)
    read = load_domains(folder, size=6, storage=storage)
    assert data.classes == read.classes == ["cat", "dog", "owl"]
    assert torch.equal(data.labels, read.labels)
    at = torch.arange(16)
    assert torch.equal(data.images[at], read.images[at])


def test_the_dataset_of_a_loader_or_subset_is_used() -> None:
    loader = DataLoader(Grays(10), batch_size=4, shuffle=True, drop_last=True)
    assert from_datasets({"a": loader}, size=4).images[:, 0, 0, 0].tolist() == [*range(10, 16)]
    dataset = Grays(0)
    dataset.classes = ["x", "y", "z"]
    assert from_datasets({"a": Subset(dataset, [2, 1])}, size=2).counts() == {"a": {"x": 0, "y": 1, "z": 1}}


def test_streams_read_only_what_is_needed_and_apply_transforms_each_time() -> None:
    dataset = Grays(10)
    dataset.targets = [2, 2, 1, 1, 0, 0]  # like torchvision's datasets: labels without pictures
    data = from_datasets({"a": dataset}, size=4, storage="stream")
    assert (dataset.read, data.labels.tolist()) == (0, dataset.targets)
    assert data.images[torch.tensor([3, 1])][:, 0, 0, 0].tolist() == [13, 11]
    assert dataset.read == 2
    some = data.subset(torch.tensor([5, 0]))
    assert some.images[torch.tensor([0, 1])][:, 0, 0, 0].tolist() == [15, 10]
    list(batches_of(data.images, [torch.tensor([1, 2]), torch.tensor([1])]))
    assert dataset.read == 2 + 2 + 3


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_stream_keep_their_order(workers: int) -> None:
    data = from_datasets({"a": Grays(10)}, size=4, storage="stream", workers=workers)
    batches = [torch.tensor([n % 6, 0]) for n in range(9)] + [torch.tensor([], dtype=torch.int64), torch.tensor([3])]
    found = list(batches_of(data.images, batches))
    assert [at.tolist() for at, _ in found] == [at.tolist() for at in batches if len(at)]
    assert [pictures[:, 0, 0, 0].tolist() for _, pictures in found] == [(at + 10).tolist() for at, _ in found]


def test_streams_can_be_sent_to_another_process(folder: Path) -> None:
    data = load_domains(folder, size=6, storage="stream")
    at = torch.tensor([1, 7])
    expected = data.images[at]
    assert torch.equal(pickle.loads(pickle.dumps(data)).images[at], expected)


def test_sets_that_do_not_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 100)
    dataset = Grays(10)
    with pytest.raises(SettingError, match=r"6 pictures of 4 x 4 .* storage='stream'"):
        from_datasets({"a": dataset}, size=4)
    assert dataset.read == 0
    assert len(from_datasets({"a": dataset}, size=4, storage="stream")) == 6


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        raise NotImplementedError


NORMALIZED = (torch.full((3, 4, 4), -2.0), 0)
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no domain": ({}, {}, "no dataset"),
    "empty": ({"a": []}, {}, "'a' is empty"),
    "without index": ({"a": Endless()}, {}, "map-style"),
    "no tuple": ({"a": [{"image": 1}]}, {}, r"item 0 of 'a' is dict, expected \(picture, label\)"),
    "no domain in the item": ([NORMALIZED], {}, r"2 values, expected \(picture, label, domain\); or pass a dataset"),
    "path": ("pictures", {}, "path pictures; read folders with load_domains"),
    "normalized": ({"a": [NORMALIZED]}, {}, "-2 to -2.*leave out transforms that normalize"),
    "shape": ({"a": [(torch.zeros(4, 4), 0)]}, {}, r"float32 \(4, 4\); expected a PIL"),
    "channels first": ({"a": [(np.zeros((3, 6, 4), np.uint8), 0)]}, {}, r"uint8 \(3, 6, 4\); expected a PIL"),
    "dtype": ({"a": [(torch.zeros(3, 4, 4, dtype=torch.int64), 0)]}, {}, "int64.*; expected a PIL"),
    "16 bits": ({"a": [(Image.new("I;16", (4, 4)), 0)]}, {}, "8 bits"),
    "label out of range": ({"a": [(Image.new("L", (4, 4)), 2)]}, {"classes": ["x", "y"]}, "label 2, expected 0 to 1"),
    "label of no kind": ({"a": [(Image.new("L", (4, 4)), 0.5)]}, {}, r"label 0\.5, expected an integer"),
    "one-hot label": ({"a": [(Image.new("L", (4, 4)), torch.eye(3)[0])]}, {}, "label tensor.*expected an integer"),
    "augment": ({"a": Grays(0)}, {"augment": torch.zeros_like}, "augment needs storage='stream'"),
    "storage": ({"a": Grays(0)}, {"storage": "disk"}, "storage='disk' is not one of 'memory', 'stream'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_items_are_refused(case: str) -> None:
    datasets, options, message = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        from_datasets(datasets, size=4, **options)
