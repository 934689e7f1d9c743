"""The models inside the package: they are what their rows say, and they do what they were trained for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from efdm.data import read_picture, resize_short_side
from efdm.data.embedded import photos, read_style
from efdm.models import build
from efdm.models.weights import WEIGHTS, checksum, find, load_network, read
from efdm.style import Stylizer

SIDE = 160
SHIPPED = [name for name, weight in WEIGHTS.items() if weight.place == "package"]


@pytest.fixture(scope="module")
def stylizer() -> Stylizer:
    return Stylizer.from_pretrained("small", "cpu")


@pytest.fixture(scope="module")
def cat() -> Tensor:
    return resize_short_side(read_picture(photos()["cat"]).rgb, SIDE)


def color_distance(a: Tensor, b: Tensor) -> float:
    """Of sorted values, channel by channel."""
    at = torch.linspace(0, 1, 101)
    return (a.flatten(1).quantile(at, 1) - b.flatten(1).quantile(at, 1)).abs().mean().item()


def edges(picture: Tensor) -> Tensor:
    grey = picture.mean(0)
    return torch.stack([grey.diff(dim=0)[:, 1:].abs(), grey.diff(dim=1)[1:].abs()]).flatten()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_file_is_the_one_of_the_table(name: str) -> None:
    assert checksum(find(name)) == WEIGHTS[name].sha256
    assert find(name).stat().st_size <= 8 << 20


def test_small_is_small() -> None:
    assert sum(p.numel() for p in build("small").parameters()) <= 3_000_000
    assert len(build("small").stages) > 1, "it matches at more than one depth"


def test_the_decoder_fits_its_network() -> None:
    decoder = load_network(build("vgg16"), find("vgg16-efdm")).decoder
    assert all(p.isfinite().all() for p in decoder.parameters())
    means = read(find("vgg16-means"))
    assert all((m > 0).all() for m in means.values())


@pytest.mark.parametrize("style", ["starry", "fauve", "wave"])
def test_colours_come_from_the_style_and_edges_from_the_content(stylizer: Stylizer, cat: Tensor, style: str) -> None:
    painting = read_style(style, SIDE)
    made = stylizer.stylize(cat, painting)
    assert color_distance(made, painting) < 0.5 * color_distance(cat, painting)
    kept = torch.corrcoef(torch.stack([edges(made), edges(cat)]))[0, 1]
    elsewhere = torch.corrcoef(torch.stack([edges(made), edges(cat.flip(-1))]))[0, 1]
    assert kept > elsewhere + 0.2, "the content cannot be recognised"


def test_a_picture_in_its_own_style_comes_back(stylizer: Stylizer, cat: Tensor) -> None:
    assert (stylizer.stylize(cat, cat) - cat).abs().mean() < 0.04


def test_strength_goes_from_the_content_to_the_style(stylizer: Stylizer, cat: Tensor) -> None:
    look = stylizer.prepare(read_style("starry", SIDE))
    off = [(stylizer.stylize(cat, look, strength=s) - cat).abs().mean().item() for s in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert off == sorted(off)
    assert off[0] < 0.04


def test_half_the_precision_is_nearly_the_same(stylizer: Stylizer, cat: Tensor) -> None:
    coarse = Stylizer.from_pretrained("small", "cpu", precision="bf16")
    painting = read_style("starry", SIDE)
    made, again = stylizer.stylize(cat, painting), coarse.stylize(cat, painting)
    assert again.dtype == torch.float32
    assert (made - again).abs().mean() < 0.02
