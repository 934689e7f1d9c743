"""What may be given to a stylizer, in which forms and sizes, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from style.test_tiles import shaken
from torch import Tensor

from efdm.data import Picture, write_picture
from efdm.models import build
from efdm.models.weights import save_network
from efdm.style.look import shares
from efdm.style.stylizer import Stylizer

# --- doors -----------------------------------------------------------------------------------------------------------


def test_from_pretrained_and_paths(tmp_path: Path) -> None:
    network = build("small")
    save_network(network, tmp_path / "mine.safetensors", {}, "float32")
    stylizer = Stylizer.from_pretrained("small", "cpu", weights=tmp_path / "mine.safetensors")
    assert "small" in repr(stylizer)
    assert "cpu" in repr(stylizer)
    assert "fp32" in repr(stylizer)
    content = torch.rand(3, 20, 28)
    write_picture(tmp_path / "content.png", content, depth="16")
    made = stylizer.stylize(tmp_path / "content.png", str(tmp_path / "content.png"))
    torch.testing.assert_close(made, stylizer.stylize(content, content), rtol=0, atol=1e-2)


def test_the_network_given_stays_as_it_is() -> None:
    network = shaken("small", torch.float32).train()
    first = Stylizer(network, "cpu")
    content, style = torch.rand(3, 20, 20), torch.rand(3, 20, 20)
    expected = first.stylize(content, style)
    other = Stylizer(network, "cpu", precision="bf16")
    assert "bf16" in repr(other)
    assert other.stylize(content, style).dtype == torch.float32
    assert torch.equal(first.stylize(content, style), expected)
    assert network.training
    assert all(p.dtype == torch.float32 and p.is_contiguous() for p in network.parameters())


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (torch.rand(1, 8, 8), {}, r"content has shape \(1, 8, 8\); expected RGB"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), {}, "content / 255"),
        (torch.rand(3, 8, 8) * 255, {}, "divide bytes by 255"),
        (torch.full((3, 8, 8), torch.nan), {}, "values from nan to nan"),
        (torch.rand(3, 8, 8), {"style": None}, "there is no style"),
        (torch.rand(3, 8, 8), {"method": "adian"}, "did you mean 'adain'"),
        (torch.rand(3, 8, 8), {"preserve_color": "yes"}, "'none', 'content', 'luminance'"),
        (torch.rand(3, 8, 8), {"photoreal": "yes"}, "'none', 'guided', 'grid'"),
        (torch.rand(3, 8, 8), {"strength": 2}, "outside 0"),
        (torch.rand(3, 8, 8), {"strength": torch.nan}, "outside 0"),
        (torch.rand(3, 8, 8), {"strength": torch.tensor(3.0)}, "outside 0"),
        (torch.rand(2, 3, 8, 8), {"strength": torch.tensor([0.5, -1.0])}, "outside 0"),
        (torch.rand(2, 3, 8, 8), {"strength": torch.tensor([0.5, torch.nan])}, "outside 0"),
        (torch.rand(2, 3, 8, 8), {"strength": torch.ones(3)}, "one for each of 2 pictures"),
        (torch.rand(3, 8, 8), {"size": 0}, "a short side in pixels"),
        (torch.rand(3, 8, 8), {"ties": "random", "method": "adain"}, "goes with method='efdm'"),
        (torch.rand(3, 8, 8), {"regions": []}, "regions is empty"),
        (torch.rand(3, 8, 8), {"regions": [(torch.ones(4, 4) > 0, torch.rand(3, 8, 8))]}, "bring it to that size"),
        (torch.rand(3, 8, 8), {"regions": [(torch.ones(8, 8), torch.rand(3, 8, 8))]}, "expected bool"),
        (torch.rand(3, 8, 8), {"regions": [(torch.ones(8, 8) > 1, torch.rand(3, 8, 8))]}, "content mask is empty"),
        (torch.rand(2, 3, 8, 8), {"style": torch.rand(3, 3, 8, 8)}, "give one, or one for each"),
    ],
)
def test_wrong_calls_say_what_to_try(
    stylizer: Stylizer, content: Tensor, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        stylizer.stylize(content, **{"style": torch.rand(3, 8, 8), **arguments})


def test_wrong_styles_say_what_to_try(stylizer: Stylizer) -> None:
    style = torch.rand(3, 8, 8)
    with pytest.raises(ValueError, match="2 styles and 1 weights"):
        stylizer.prepare([style, style], weights=[1])
    with pytest.raises(ValueError, match="not all zero"):
        stylizer.prepare([style, style], weights=[0, 0])
    with pytest.raises(ValueError, match="2 styles and 1 masks"):
        stylizer.prepare([style, style], masks=[None])
    with pytest.raises(ValueError, match="style mask is empty"):
        stylizer.prepare(style, masks=torch.zeros(8, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="transparent"):
        stylizer.prepare(Picture(style, torch.zeros(1, 8, 8)))


@pytest.mark.parametrize("weights", [[1e308, 1e308], [torch.inf, 1], [torch.nan, 1], [-1, 2], [0, 0]], ids=str)
def test_shares_of_nothing_that_adds_up(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="finite sum"):
        shares(weights, 2)


# --- what may be given -------------------------------------------------------------------------------------------------


def test_arrays_and_images_are_pictures(stylizer: Stylizer) -> None:
    from PIL import Image

    picture = torch.rand(3, 24, 32).mul(255).round()
    wanted = stylizer.stylize(picture / 255, picture / 255)
    array = picture.permute(1, 2, 0).numpy().astype("uint8")
    for given in (array, Image.fromarray(array), (array / 255).astype("float32")):
        torch.testing.assert_close(stylizer.stylize(given, given), wanted, atol=1e-4, rtol=0)
    grey = stylizer.stylize(array[..., 0], array)
    assert grey.shape == (3, 24, 32)
    with pytest.raises(TypeError, match="expected a path, a tensor"):
        stylizer.stylize(array.astype("int32"), array)


def test_an_opened_image_is_what_its_file_is(stylizer: Stylizer, tmp_path: Path) -> None:
    """Upright, and what is transparent does not count."""
    from PIL import Image

    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (24, 32, 4), generator=rng).to(torch.uint8)
    pixels[:8, :, 3] = 0
    image, turned = Image.fromarray(pixels.numpy()), Image.Exif()
    turned[0x0112] = 6
    image.save(tmp_path / "seen.png", exif=turned)
    with Image.open(tmp_path / "seen.png") as same:
        made = [stylizer.stylize(given, "bauhaus", size=32) for given in (tmp_path / "seen.png", same)]
    assert made[0].shape == (3, 32, 24)
    assert torch.equal(*made)


def test_painted_styles_have_names(stylizer: Stylizer) -> None:
    from efdm.data.embedded import read_style

    content = torch.rand(3, 20, 20)
    assert torch.equal(
        stylizer.stylize(content, "bauhaus", size=32), stylizer.stylize(content, read_style("bauhaus"), size=32)
    )


@pytest.mark.parametrize(
    ("shape", "size", "wanted"),
    [
        ((40, 60), "auto", (40, 60)),
        ((40, 60), None, (40, 60)),
        ((3000, 4000), "auto", (1024, 1365)),
        ((3000, 4000), "full", (3000, 4000)),
        ((3000, 4000), 300, (300, 400)),
        ((40, 60), 80, (80, 120)),
    ],
)
def test_the_size_of_work(shape: tuple[int, int], size: object, wanted: tuple[int, int]) -> None:
    from efdm.style.pictures import working_size

    assert working_size(torch.empty(1, 3, *shape, device="meta"), size) == wanted


@pytest.mark.parametrize("size", [0, "large", 20_000, 1.5])
def test_sizes_that_make_no_sense(size: object) -> None:
    from efdm.style.pictures import working_size

    with pytest.raises(ValueError, match=r"expected a short side|too many"):
        working_size(torch.empty(1, 3, 300, 400, device="meta"), size)
