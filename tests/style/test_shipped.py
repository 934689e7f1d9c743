"""The shipped weights: checksums, size and results."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data import read_picture, resize_short_side
from efdm.data.embedded import photos, read_style
from efdm.models.weights import WEIGHTS, checksum, find, read
from efdm.style import Stylizer

SIDE = 160
SHIPPED = [name for name, weight in WEIGHTS.items() if weight.place == "package" and weight.sha256]


@pytest.fixture(scope="module")
def stylizer() -> Stylizer:
    return Stylizer.from_pretrained("small", "cpu")


@pytest.fixture(scope="module")
def cat() -> Tensor:
    return resize_short_side(read_picture(photos()["cat"]).rgb, SIDE)


def color_distance(a: Tensor, b: Tensor) -> float:
    """Return the mean distance of quantiles, channel by channel."""
    at = torch.linspace(0, 1, 101)
    return (a.flatten(1).quantile(at, 1) - b.flatten(1).quantile(at, 1)).abs().mean().item()


def edges(picture: Tensor) -> Tensor:
    grey = picture.mean(0)
    return torch.stack([grey.diff(dim=0)[:, 1:].abs(), grey.diff(dim=1)[1:].abs()]).flatten()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files(name: str) -> None:
    assert checksum(find(name)) == WEIGHTS[name].sha256
    assert find(name).stat().st_size <= 8 << 20
    assert all(value.isfinite().all() for value in read(find(name)).values())


@pytest.mark.parametrize("style", ["starry", "fauve"])
def test_colours_come_from_the_style_and_edges_from_the_content(stylizer: Stylizer, cat: Tensor, style: str) -> None:
    painting = read_style(style, SIDE)
    made = stylizer.stylize(cat, painting)
    assert color_distance(made, painting) < 0.5 * color_distance(cat, painting)
    kept = torch.corrcoef(torch.stack([edges(made), edges(cat)]))[0, 1]
    elsewhere = torch.corrcoef(torch.stack([edges(made), edges(cat.flip(-1))]))[0, 1]
    assert kept > elsewhere + 0.2


# means over the quadrants of the stylized cat, RGB; they change only if the results of the released model change
QUADRANTS = {
    "efdm": [[0.3140, 0.2722, 0.3346, 0.3279], [0.4585, 0.4418, 0.4474, 0.4651], [0.5318, 0.5904, 0.5373, 0.5877]],
    "adain": [[0.3300, 0.2828, 0.3563, 0.3111], [0.4569, 0.4320, 0.4575, 0.4726], [0.5178, 0.6007, 0.5224, 0.6130]],
}


@pytest.mark.parametrize("method", QUADRANTS)
def test_results_are_unchanged(stylizer: Stylizer, cat: Tensor, method: str) -> None:
    exact = 0.0 if method == "efdm" else None
    made = stylizer.stylize(cat, read_style("starry", SIDE), method=method, tolerance=exact)
    found = F.adaptive_avg_pool2d(made, 2).flatten(1)
    torch.testing.assert_close(found, torch.tensor(QUADRANTS[method]), rtol=0, atol=2e-3)


def test_content_as_its_own_style_is_unchanged(stylizer: Stylizer, cat: Tensor) -> None:
    assert (stylizer.stylize(cat, cat) - cat).abs().mean() < 0.04


def test_distance_grows_with_strength(stylizer: Stylizer, cat: Tensor) -> None:
    look = stylizer.prepare(read_style("starry", SIDE))
    off = [(stylizer.stylize(cat, look, strength=s) - cat).abs().mean().item() for s in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert off == sorted(off)
    assert off[0] < 0.04


def test_bf16_is_close_to_fp32(stylizer: Stylizer, cat: Tensor) -> None:
    coarse = Stylizer.from_pretrained("small", "cpu", precision="bf16")
    small, painting = resize_short_side(cat, 64), read_style("starry", 64)
    made, again = stylizer.stylize(small, painting), coarse.stylize(small, painting)
    assert again.dtype == torch.float32
    assert (made - again).abs().mean() < 0.02
