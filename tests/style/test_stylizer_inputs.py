"""Types, sizes and errors of the stylizer's arguments, and the type of its result."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from style.test_tiles import randomized
from torch import Tensor

from efdm.data import Picture, PictureError, memory, write_picture
from efdm.errors import SettingError
from efdm.models import build
from efdm.models.weights import save_network
from efdm.style.look import normalize_weights
from efdm.style.options import StylizeOptions
from efdm.style.pictures import working_size
from efdm.style.stylizer import Stylizer
from efdm.style.video import stylize_frames


def test_from_pretrained_loads_a_file(tmp_path: Path) -> None:
    network = build("small")
    save_network(network, tmp_path / "mine.safetensors", {}, "float32")
    stylizer = Stylizer.from_pretrained("small", "cpu", weights=tmp_path / "mine.safetensors")
    assert repr(stylizer) == "Stylizer(small, device=cpu, precision=fp32)"
    content = torch.rand(3, 20, 28)
    assert torch.equal(stylizer.stylize(content, content), Stylizer(network, "cpu").stylize(content, content))


def test_the_given_network_is_copied() -> None:
    network = randomized("small", torch.float32).train()
    first = Stylizer(network, "cpu")
    content, style = torch.rand(3, 20, 20), torch.rand(3, 20, 20)
    expected = first.stylize(content, style)
    other = Stylizer(network, "cpu", precision="bf16")
    assert other.stylize(content, style).dtype == torch.float32
    assert torch.equal(first.stylize(content, style), expected)
    assert network.training
    assert all(p.dtype == torch.float32 and p.is_contiguous() for p in network.parameters())


@pytest.fixture
def pixels() -> np.ndarray:
    """RGBA with a transparent band."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 4), dtype=np.uint8)
    pixels[:8, :, 3] = 0
    return pixels


def test_pil_image_gives_pil_image(stylizer: Stylizer, pixels: np.ndarray) -> None:
    rgba = stylizer.stylize(Image.fromarray(pixels), "bauhaus", size=32)
    assert isinstance(rgba, Image.Image)
    assert (rgba.mode, rgba.size) == ("RGBA", (32, 24))
    made = np.asarray(rgba)
    assert np.array_equal(made[..., 3], pixels[..., 3])
    assert np.array_equal(made[:8], pixels[:8])  # transparent pixels stay unchanged
    assert not np.array_equal(made[8:], pixels[8:])
    assert stylizer.stylize(Image.fromarray(pixels[..., :3]), "bauhaus", size=32).mode == "RGB"
    assert stylizer.stylize(Image.fromarray(pixels[..., 0]), "bauhaus", size=32).mode == "RGB"  # grey becomes coloured


def test_path_and_bytes_give_a_picture(stylizer: Stylizer, pixels: np.ndarray, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    image = Image.fromarray(pixels)
    image.save(tmp_path / "content.png", exif=exif)
    data = (tmp_path / "content.png").read_bytes()
    made = [stylizer.stylize(given, "bauhaus", size=32) for given in (tmp_path / "content.png", data)]
    for picture in made:
        assert isinstance(picture, Picture)
        assert torch.equal(picture.rgb, made[0].rgb)
        assert picture.rgb.shape == (3, 32, 24)
        assert picture.alpha is not None
        assert picture.alpha[0, :, -8:].eq(0).all()
    with Image.open(io.BytesIO(data)) as opened:
        assert np.array_equal(stylizer.stylize(opened, "bauhaus", size=32), made[0].to_pil())
    made[0].save(tmp_path / "made.png")
    assert np.array_equal(Image.open(tmp_path / "made.png"), made[0].to_pil())


def test_picture_gives_picture_with_its_depth(stylizer: Stylizer, tmp_path: Path) -> None:
    content = torch.rand(3, 20, 28)
    write_picture(tmp_path / "content.png", content, depth="16")
    made = stylizer.stylize(tmp_path / "content.png", content)
    assert made.depth == "16"
    torch.testing.assert_close(made.rgb, stylizer.stylize(content, content), rtol=0, atol=1e-2)
    again = stylizer.stylize(Picture(content, torch.ones(1, 20, 28)), content)
    assert torch.equal(again.rgb, stylizer.stylize(content, content))
    assert again.alpha is not None


def test_array_gives_array(stylizer: Stylizer, pixels: np.ndarray) -> None:
    rgb = pixels[..., :3]
    tensor = torch.from_numpy(rgb.copy()).permute(2, 0, 1) / 255
    expected = stylizer.stylize(tensor, tensor).permute(1, 2, 0).numpy()
    made = stylizer.stylize(rgb, rgb)
    assert (made.dtype, made.shape) == (np.uint8, (24, 32, 3))
    assert np.abs(made / 255 - expected).max() < 0.003
    floats = stylizer.stylize((rgb / 255).astype(np.float32), rgb)
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats, expected, atol=1e-4)
    assert np.array_equal(stylizer.stylize(pixels, rgb)[..., 3], pixels[..., 3])
    assert stylizer.stylize(rgb[..., 0], rgb).shape == (24, 32, 3)
    with pytest.raises(TypeError, match=r"shape \(24, 32, 3\) and dtype int32"):
        stylizer.stylize(rgb.astype("int32"), rgb)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_tensor_gives_tensor_of_its_dtype(stylizer: Stylizer, dtype: torch.dtype) -> None:
    assert stylizer.stylize(torch.rand(3, 16, 24, dtype=dtype), "bauhaus", size=32).dtype == dtype


def test_integers_of_eight_and_sixteen_bits(stylizer: Stylizer, pixels: np.ndarray) -> None:
    small = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    made = stylizer.stylize(small, "bauhaus", size=32)
    assert (made.dtype, made.shape) == (torch.uint8, (4, 24, 32))
    assert np.array_equal(made.permute(1, 2, 0), stylizer.stylize(pixels, "bauhaus", size=32))
    wide = stylizer.stylize(pixels.astype(np.uint16) * 257, "bauhaus", size=32)
    assert wide.dtype == np.uint16
    assert np.abs(wide / 257 - made.permute(1, 2, 0).numpy()).max() <= 0.5


def test_binary_files_and_numpy_sizes(stylizer: Stylizer, pixels: np.ndarray) -> None:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    expected = stylizer.stylize(file.getvalue(), "bauhaus", size=32)
    for _ in range(2):  # at its end after writing, and somewhere after reading
        made = stylizer.stylize(file, "bauhaus", size=np.int64(32))
        assert torch.equal(made.rgb, expected.rgb)
    with pytest.raises(PictureError, match="binary mode"):
        stylizer.stylize(io.StringIO("text"), "bauhaus")


def test_numpy_seeds(stylizer: Stylizer) -> None:
    content = torch.zeros(3, 16, 16)
    made = [stylizer.stylize(content, "bauhaus", ties="random", seed=seed) for seed in (3, np.int64(3))]
    assert torch.equal(*made)


def test_a_list_of_contents_gives_a_list(stylizer: Stylizer, pixels: np.ndarray) -> None:
    tensor = torch.rand(3, 20, 24)
    first, second = stylizer([pixels, tensor], "bauhaus", size=32)
    assert np.array_equal(first, stylizer.stylize(pixels, "bauhaus", size=32))
    assert torch.equal(second, stylizer.stylize(tensor, "bauhaus", size=32))


def test_the_device_is_checked_and_can_be_changed() -> None:
    with pytest.raises(SettingError, match=r"'cuda:99'.*use device='cpu'"):
        Stylizer(build("small"), "cuda:99")
    stylizer = Stylizer(build("small"), "cpu")
    assert stylizer.to("cpu") is stylizer
    with pytest.raises(SettingError, match="'cuda:99'"):
        stylizer.to("cuda:99")


def test_a_look_has_a_short_repr(stylizer: Stylizer) -> None:
    look = stylizer.prepare([torch.rand(3, 20, 24), torch.rand(3, 16, 16)], weights=[3, 1])
    assert repr(look) == "Look(styles of 20 x 24, 16 x 16, weights=(0.75, 0.25))"


@pytest.mark.parametrize("form", ["bool", "uint8", "float", "array", "image", "palette", "transparent", "file"])
def test_forms_of_a_mask(stylizer: Stylizer, tmp_path: Path, form: str) -> None:
    content, style, mask = torch.rand(3, 16, 24), torch.rand(3, 16, 24), torch.zeros(16, 24, dtype=torch.bool)
    mask[:, :12] = True
    grey = Image.fromarray(mask.numpy().astype(np.uint8) * 255)
    grey.save(tmp_path / "mask.png")
    palette, transparent = grey.point([0] * 255 + [1], "L"), grey.convert("RGBA")
    palette.putpalette([0, 0, 0, 255, 255, 255])  # black and white have the indices 0 and 1
    transparent.putalpha(grey)
    forms = {
        "palette": palette, "transparent": transparent,
        "bool": mask, "uint8": mask.byte() * 255, "float": mask.float(), "array": mask.numpy(), "image": grey,
        "file": tmp_path / "mask.png",
    }  # fmt: skip
    expected = stylizer.stylize(content, regions=[(mask, style)])
    assert torch.equal(expected[:, ~mask], content[:, ~mask])
    assert torch.equal(stylizer.stylize(content, regions=[(forms[form], style)]), expected)
    look = stylizer.prepare(style, masks=forms[form])
    assert torch.equal(stylizer.stylize(content, look), stylizer.stylize(content, stylizer.prepare(style, masks=mask)))


def test_a_mask_file_is_enlarged_smoothly(stylizer: Stylizer, tmp_path: Path) -> None:
    write_picture(tmp_path / "mask.png", torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(3, 4, 4))
    content, style = torch.zeros(3, 32, 32), torch.rand(3, 16, 24)
    row = stylizer.stylize(content, regions=[(tmp_path / "mask.png", style)]).mean((0, 1))
    full = stylizer.stylize(content, style).mean()
    assert row[:8].max() < 0.1 * full
    assert row.diff().abs().max() < 0.5 * full  # no step at the edge


def test_options_as_a_whole_and_as_keywords(stylizer: Stylizer) -> None:
    content, style = torch.rand(3, 20, 24), torch.rand(3, 20, 20)
    options = StylizeOptions(strength=0.5, method="adain")
    expected = stylizer.stylize(content, style, strength=0.5, method="adain", stroke=2)
    assert torch.equal(stylizer.stylize(content, style, options=options, stroke=2), expected)
    assert torch.equal(
        next(stylize_frames(stylizer, [content], stylizer.prepare(style), options=options, stroke=2)), expected
    )
    small = stylizer.stylize(content, stylizer.prepare(style, size=12))
    assert torch.equal(stylizer.stylize(content, style, style_size=12), small)
    with pytest.raises(TypeError, match="strenght"):
        stylizer.stylize(content, style, strenght=0.5)
    with pytest.raises(SettingError, match="video"):
        stylize_frames(stylizer, [content], stylizer.prepare(style), ties="random")


PICTURE, BATCH, EVERYWHERE = torch.rand(3, 8, 8), torch.rand(2, 3, 8, 8), torch.ones(8, 8, dtype=torch.bool)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (torch.rand(1, 8, 8), {}, r"\(1, 8, 8\)"),
        (torch.zeros(3, 8, 8, dtype=torch.int32), {}, "content / 255"),
        (PICTURE * 255, {}, "content / 255"),
        (torch.full((3, 8, 8), torch.nan), {}, "from nan to nan$"),
        (PICTURE, {"style": None}, "pass either a style, or regions"),
        (PICTURE, {"style": PICTURE, "regions": [(EVERYWHERE, PICTURE)]}, "pass either a style, or regions"),
        (PICTURE, {"style": "stary"}, "'starry'"),
        (PICTURE, {"method": "adian"}, "did you mean 'adain'"),
        (PICTURE, {"preserve_color": "yes"}, "'none', 'content', 'luminance'"),
        (PICTURE, {"photoreal": "yes"}, "'none', 'guided', 'grid'"),
        (PICTURE, {"strength": 2}, r"strength.*2\.0"),
        (PICTURE, {"strength": "0.5"}, "strength.*a number from 0 to 1, got '0.5'"),
        (BATCH, {"strength": torch.tensor([0.5, torch.nan])}, "strength.*nan"),
        (BATCH, {"strength": torch.ones(3)}, r"strength.*\(2,\)"),
        (PICTURE, {"size": 0}, "size.*0"),
        (PICTURE, {"ties": "random", "method": "adain"}, "ties='random' needs method='efdm'"),
        (PICTURE, {"regions": []}, "regions is empty"),
        (PICTURE, {"regions": [(EVERYWHERE[:4, :4], PICTURE)]}, r"\(8, 8\), got \(4, 4\)"),
        (PICTURE, {"regions": [(EVERYWHERE.float() * 255, PICTURE)]}, "content mask.*0, 1.*255"),
        (PICTURE, {"regions": [(EVERYWHERE.byte(), PICTURE)]}, "content mask of uint8.*mask > 0"),
        (PICTURE, {"regions": [(~EVERYWHERE, PICTURE)]}, "content mask is empty"),
        (PICTURE, {"regions": [(io.BytesIO(), PICTURE)]}, "content mask must be.*got BytesIO"),
        (BATCH, {"style": torch.rand(3, 3, 8, 8)}, "2 contents, got a batch of 3"),
    ],
)
def test_wrong_arguments_of_stylize(stylizer: Stylizer, content: Tensor, arguments: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        stylizer.stylize(content, **{"style": None if "regions" in arguments else PICTURE, **arguments})


@pytest.mark.parametrize(
    ("styles", "arguments", "message"),
    [
        ([PICTURE, PICTURE], {"weights": [1]}, "2 styles and 1 weight$"),
        ([], {}, "at least one style"),
        ([PICTURE, PICTURE], {"masks": [None]}, "2 styles, got 1 masks"),
        (PICTURE, {"masks": ~EVERYWHERE}, "style mask is empty"),
        (Picture(PICTURE, torch.zeros(1, 8, 8)), {}, "transparent"),
    ],
)
def test_wrong_arguments_of_prepare(stylizer: Stylizer, styles: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stylizer.prepare(styles, **arguments)


@pytest.mark.parametrize("weights", [[1e308, 1e308], [torch.nan, 1], [-1, 2], [0, 0]], ids=str)
def test_weights_need_a_positive_finite_sum(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="finite sum"):
        normalize_weights(weights, 2)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((40, 60), "auto", (40, 60)),
        ((40, 60), None, (40, 60)),
        ((3000, 4000), "auto", (1024, 1365)),
        ((3000, 4000), "full", (3000, 4000)),
        ((3000, 4000), 300, (300, 400)),
        ((40, 60), 80, (80, 120)),
        ((1, 5000), 128, (1, 5000)),
        ((5000, 1), 512, (8192, 2)),
        ((1000, 40_000), 500, (500, 20_000)),
    ],
)
def test_working_size(shape: tuple[int, int], size: object, expected: tuple[int, int]) -> None:
    assert working_size(torch.empty(1, 3, *shape, device="meta"), size) == expected


def test_sizes_beyond_the_free_memory_are_refused(stylizer: Stylizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 10**9)
    look = stylizer.prepare(PICTURE)
    for name in ("run_stage", "run_network"):
        monkeypatch.setattr(f"efdm.style.stylizer.{name}", lambda *_: pytest.fail("ran"))
    calls = {
        "content": lambda: stylizer.stylize(PICTURE, look, size=3000),
        "style": lambda: stylizer.prepare(PICTURE, size=3000),
        "video": lambda: next(stylize_frames(stylizer, [PICTURE], look, size=3000)),
    }
    for role, call in calls.items():
        with pytest.raises(SettingError, match=rf"3000 x 3000 pixels of the {role} need 1\.44 GB .* 1 GB are free"):
            call()


@pytest.mark.parametrize("size", [0, "large", 20_000, 1.5])
def test_wrong_sizes(size: object) -> None:
    with pytest.raises(ValueError, match=f"size.*{size}"):
        working_size(torch.empty(1, 3, 300, 400, device="meta"), size)
