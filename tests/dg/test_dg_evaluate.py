import pytest
import torch
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.dg.evaluate import count_correct, evaluate, find_correct, predict
from efdm.training.lanes import finish


class Reader(nn.Module):
    """Read the class off the first pixel, and record the sizes of the batches."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.scale, self.classes = nn.Parameter(torch.tensor(50.0)), classes
        self.norm, self.frozen = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.batches: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        assert images.is_contiguous(memory_format=torch.channels_last)
        self.batches.append(len(images))
        red = images[:, 0, 0, 0] * 0.229 + 0.485  # undo the normalization by ImageNet's mean and standard deviation
        return -self.scale * (red[:, None] - torch.arange(self.classes) / 10).abs()


@pytest.fixture
def data() -> DomainSet:
    """Return two domains whose images encode their class; every fifth image encodes a wrong one."""
    n = 25
    labels = torch.arange(n) % 3
    shown = torch.where(torch.arange(n) % 5 == 4, (labels + 1) % 3, labels)
    images = (shown * 25.5).round().to(torch.uint8)[:, None, None, None].expand(n, 3, 4, 4).contiguous()
    domains = (torch.arange(n) >= 10).long()
    splits = {}
    for number, name in enumerate(("a", "b")):
        at = (domains == number).nonzero()[:, 0]
        splits[name] = {"train": at[:-5], "val": at[-5:], "test": at}
    return DomainSet(images, labels, domains, [str(i) for i in range(n)], ["x", "y", "z"], ["a", "b"], splits)


def test_probabilities_of_the_classes(data: DomainSet) -> None:
    model = Reader().train()
    found = predict(model, data.images, 4, batch=10)
    assert found.shape == (25, 3)
    torch.testing.assert_close(found.sum(1), torch.ones(25))
    wrong = torch.arange(25) % 5 == 4
    assert torch.equal(found.argmax(1) == data.labels, ~wrong)
    assert model.training


@pytest.mark.parametrize("batch", [1, 7, 10, 25, 256])
def test_counts_do_not_depend_on_the_batch(data: DomainSet, batch: int) -> None:
    model = Reader()
    assert count_correct(model, data, data.select("b"), 4, batch=batch) == (12, 15)
    assert set(model.batches) == {min(batch, 15)}  # the last batch is padded
    assert count_correct(model, data, torch.tensor([4]), 4, batch=batch) == (0, 1)
    assert count_correct(model, data, torch.tensor([], dtype=torch.int64), 4, batch=batch) == (0, 0)


def test_counts_for_each_split_and_domain(data: DomainSet) -> None:
    model = Reader()
    found = finish(evaluate(model, data, {"val": ["a", "b"], "test": ["b"]}, 4))
    assert found == {"val": {"a": [4, 5], "b": [4, 5]}, "test": {"b": [12, 15]}}
    assert model.batches == [20]  # no image is evaluated twice


def test_evaluation_restores_the_mode_of_every_layer(data: DomainSet) -> None:
    model = Reader().train()
    model.frozen.eval()
    work = find_correct(model, data, data.select("a"), 4, batch=5)
    next(work)
    assert not model.training
    work.close()  # interrupted
    assert (model.training, model.norm.training, model.frozen.training) == (True, True, False)
    predict(model, data.images, 4, batch=5)
    assert (model.training, model.norm.training, model.frozen.training) == (True, True, False)
    finish(find_correct(model, data, data.select("a"), 4, batch=5))
    assert (model.training, model.norm.training, model.frozen.training) == (True, True, False)


def test_evaluation_sets_no_global_state_between_batches(data: DomainSet) -> None:
    """Other lanes run between two steps, so inference mode and autocast must be off there."""
    work = find_correct(Reader(), data, data.select("b"), 4, batch=5, precision="bf16")
    for _ in range(2):
        next(work)
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert torch.is_grad_enabled()
    work.close()
