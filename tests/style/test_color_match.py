"""Exact matching of pictures: distributions, types, masks, spaces, references."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import efdm
from efdm.data import Picture, read_picture, write_picture
from efdm.data.embedded import photos
from efdm.errors import SettingError
from efdm.style import levels, match_picture, prepare_reference
from efdm.style.color import SPACES, lab_to_rgb, rgb_to_lab

KINDS = ("uint8", "uint16", "float32")


def picture(seed: int, kind: str = "uint8", size: tuple[int, int] = (24, 20), channels: int = 3) -> Any:
    """A smooth picture with noise: few distinct values at 8 bits, so many ties."""
    draw = np.random.default_rng(seed)
    waves = np.sin(np.linspace(0, 3 + seed, size[0] * size[1] * channels)).reshape(*size, channels) * 0.2 + 0.5
    unit = np.clip(waves ** (1 + seed % 3) + draw.normal(0, 0.02, waves.shape), 0.01, 1)
    return (unit * {"uint8": 255, "uint16": 65535, "float32": 1}[kind]).astype(kind)


def ordered(array: Any) -> Any:
    return np.sort(array.reshape(-1, array.shape[-1]), axis=0)


@pytest.mark.parametrize("ties", ["smooth", "dither", "position"])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_sizes_give_exactly_the_values_of_the_reference(kind: str, ties: str) -> None:
    x, y = picture(1, kind), picture(2, kind)
    made = match_picture(x, y, ties=ties)
    assert made.dtype == x.dtype
    np.testing.assert_array_equal(ordered(made), ordered(y))
    for channel in range(3):  # larger values stay larger
        order = np.argsort(x[..., channel], axis=None, kind="stable")
        low, high = x[..., channel].flat[order], made[..., channel].flat[order].astype(float)
        starts = np.flatnonzero(np.diff(low)) + 1
        assert (np.maximum.accumulate(high)[starts - 1] <= np.minimum.accumulate(high[::-1])[::-1][starts]).all()


@pytest.mark.parametrize("size", [(7, 9), (40, 31)])
@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_levels_follow_the_definition_of_efdm(kind: str, size: tuple[int, int]) -> None:
    x, y = picture(1, kind), picture(2, kind, size)
    as_rows = [torch.from_numpy(each.astype(np.float64)).permute(2, 0, 1)[None] for each in (x, y)]
    expected = efdm.efdm(*as_rows, ties="stable", sizes="nearest")[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(match_picture(x, y, ties="position"), expected)


def test_floats_follow_the_definition_of_efdm() -> None:
    x, y = (torch.from_numpy(picture(i, "float32", s)).permute(2, 0, 1) for i, s in ((1, (9, 8)), (2, (11, 13))))
    torch.testing.assert_close(match_picture(x, y), efdm.efdm(x[None], y[None])[0], rtol=0, atol=0)


@pytest.mark.parametrize("ties", ["smooth", "dither", "position"])
@pytest.mark.parametrize(
    ("kind", "size"), [("uint8", (24, 20)), ("uint16", (24, 20)), ("uint8", (1, 3)), ("uint8", (300, 260))]
)
def test_compiled_code_gives_the_same_values(monkeypatch: pytest.MonkeyPatch, kind: str, size: Any, ties: str) -> None:
    pytest.importorskip("numba")
    x, y = picture(1, kind, size), picture(2, kind, (31, 17))
    with_numba = match_picture(x, y, ties=ties, seed=3)
    monkeypatch.setattr(levels, "_compiled", lambda tensor: False)
    assert np.array_equal(with_numba, match_picture(x, y, ties=ties, seed=3))


def test_a_plateau_continues_the_gradient_around_it() -> None:
    ramp = np.repeat(np.arange(120, 128, dtype=np.uint8), 16)[None].repeat(48, 0)
    target = np.linspace(0, 255, ramp.size).astype(np.uint8).reshape(ramp.shape)
    smooth, shares = (match_picture(ramp, target, ties=t).astype(float).mean(0) for t in ("smooth", "position"))
    assert np.diff(shares).max() > 25, "ties by position jump at the borders of plateaus"
    assert np.diff(smooth)[16:-16].max() < 15
    assert np.abs(smooth - np.linspace(0, 255, 128)).max() < 12


def test_references_of_several_pictures_are_pooled() -> None:
    x, y, z = picture(1), picture(2, size=(10, 12)), picture(3, size=(8, 45))
    stacked = np.concatenate([y.reshape(-1, 1, 3), z.reshape(-1, 1, 3)])
    expected = match_picture(x, stacked)
    np.testing.assert_array_equal(match_picture(x, [y, z]), expected)
    merged = prepare_reference(y) + prepare_reference(z)
    assert merged.values is None, "integer references keep counts, not pixels"
    np.testing.assert_array_equal(match_picture(x, merged), expected)
    floats = prepare_reference(y / np.float32(255)) + prepare_reference(z)
    np.testing.assert_array_equal(match_picture(x, floats), expected)
    with pytest.raises(SettingError, match="lab"):
        _ = prepare_reference(y) + prepare_reference(y, space="lab")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_depths_are_converted(kind: str, other: str) -> None:
    y = picture(2)
    same = {"uint8": y, "uint16": y.astype(np.uint16) * 257, "float32": y / np.float32(255)}
    made = match_picture(picture(1, kind), same[other])
    np.testing.assert_allclose(ordered(made).astype(float), ordered(same[kind]).astype(float), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_no_data(kind: str) -> None:
    x, y = picture(1, kind), picture(2, kind)
    mask, reference_mask = np.zeros((24, 20), bool), np.zeros((24, 20), bool)
    mask[:10], reference_mask[14:] = True, True
    made = match_picture(x, y, mask=mask, reference_mask=reference_mask)
    np.testing.assert_array_equal(made[10:], x[10:])
    np.testing.assert_array_equal(ordered(made[:10]), ordered(y[14:]))
    empty = np.nan if kind == "float32" else 0
    x[10:], y[:14] = empty, empty
    holes = match_picture(x, y, nodata=None if kind == "float32" else 0)
    np.testing.assert_array_equal(holes[10:], x[10:])
    np.testing.assert_array_equal(ordered(holes[:10]), ordered(y[14:]))
    np.testing.assert_array_equal(match_picture(x, y, mask=mask.astype("u2")), match_picture(x, y, mask=mask))
    with pytest.raises(SettingError, match="list of references is empty"):
        prepare_reference([])
    with pytest.raises(SettingError, match="no pixels"):
        match_picture(x, y, reference_mask=np.zeros((24, 20)))
    with pytest.raises(SettingError, match=r"24 x 20"):
        match_picture(x, y, mask=np.ones((3, 3)))
    np.testing.assert_array_equal(match_picture(x, y, mask=np.zeros((24, 20))), x)


@pytest.mark.filterwarnings("error")
def test_masks_are_arrays_images_or_tensors() -> None:
    x, y, mask = picture(1), picture(2), np.tri(24, 20, dtype=bool)
    expected = match_picture(x, y, mask=mask)
    for form in (Image.fromarray(mask), torch.from_numpy(mask), mask.tolist()):
        np.testing.assert_array_equal(match_picture(x, y, mask=form), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_strength(kind: str) -> None:
    x, y = picture(1, kind), picture(2, kind)
    np.testing.assert_array_equal(match_picture(x, y, strength=0), x)
    half = match_picture(x, y, strength=0.5).astype(float)
    expected = (x.astype(float) + match_picture(x, y)) / 2
    assert np.abs(half - expected).max() <= (0.5 if kind != "float32" else 1e-6)


def test_types() -> None:
    x, y = picture(1), picture(2)
    expected = match_picture(x, y)
    np.testing.assert_array_equal(np.asarray(match_picture(Image.fromarray(x), y)), expected)
    np.testing.assert_array_equal(match_picture(torch.from_numpy(x).permute(2, 0, 1), y).permute(1, 2, 0), expected)
    opened = match_picture(Picture(torch.from_numpy(x).permute(2, 0, 1) / 255), Image.fromarray(y))
    np.testing.assert_array_equal(np.asarray(opened.to_pil()), expected)
    reversed_rows, big_endian, read_only = x[::-1].copy()[::-1], picture(1, "uint16").astype(">u2"), x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(match_picture(reversed_rows, read_only), match_picture(x, x))
    np.testing.assert_array_equal(match_picture(big_endian, y), match_picture(picture(1, "uint16"), y))
    assert match_picture(x[..., 0], y[..., 0]).shape == (24, 20)
    np.testing.assert_array_equal(match_picture(x[..., 0], y[..., 0]), match_picture(x[..., :1], y[..., :1])[..., 0])
    assert match_picture(x.repeat(2, -1), y.repeat(2, -1)).shape == (24, 20, 6)
    assert efdm.match_picture is match_picture
    for wrong in (torch.zeros(1, 3, 4, 4), np.zeros((3, 3), np.int64)):
        with pytest.raises(TypeError, match="expected"):
            match_picture(wrong, y)
    with pytest.raises(SettingError, match="1 and 3"):
        match_picture(x[..., 0], y)
    with pytest.raises(SettingError, match="3 channels"):
        match_picture(x[..., 0], y, space="lab")
    with pytest.raises(SettingError, match="luminance"):
        match_picture(x, y, space="luminance", method="joint")


def test_files_of_every_depth(tmp_path: Path) -> None:
    pytest.importorskip("tifffile")
    from efdm.data.arrays import created_array

    write_picture(tmp_path / "8.png", torch.from_numpy(picture(1)).permute(2, 0, 1) / 255)
    rgb16 = torch.from_numpy(picture(2, "uint16").astype(np.float32)).permute(2, 0, 1) / 65535
    write_picture(tmp_path / "16.png", rgb16, depth="16")
    for name, kind in (("16.tif", "uint16"), ("f.tif", "float32"), ("f.npy", "float32"), ("8.tif", "uint8")):
        with created_array(tmp_path / name, (24, 20, 3), np.dtype(kind)) as array:
            array[:] = picture(3, kind)
    for name in ("8.png", "16.png", "16.tif", "f.tif", "f.npy", "8.tif"):
        made = match_picture(tmp_path / name, tmp_path / "16.tif")
        if isinstance(made, Picture):
            assert made.depth == ("16" if "16" in name else "8")
            made = made.rgb.permute(1, 2, 0).numpy()
            expected = picture(3, "uint16") / 65535
        else:
            expected = picture(3, made.dtype.name)
        np.testing.assert_allclose(ordered(made), ordered(expected), atol=0.5 / 255 + 1e-4)
    broken = tmp_path / "cut.npy"
    broken.write_bytes((tmp_path / "f.npy").read_bytes()[:40])
    with pytest.raises(SettingError, match=r"cut\.npy"):
        match_picture(broken, tmp_path / "8.png")


def test_transparent_pixels_are_left_out() -> None:
    x, y = picture(1), picture(2)
    alpha = np.full((24, 20, 1), 255, np.uint8)
    alpha[12:] = 0
    made = np.asarray(match_picture(Image.fromarray(np.concatenate([x, alpha], 2)), Image.fromarray(y[:12])))
    np.testing.assert_array_equal(ordered(made[:12, :, :3]), ordered(y[:12]))
    np.testing.assert_array_equal(made[12:, :, :3], x[12:])
    np.testing.assert_array_equal(made[..., 3:], alpha)


def test_lab_agrees_with_scikit_image_and_returns() -> None:
    color = pytest.importorskip("skimage.color")
    rgb = torch.rand(3, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lab = rgb_to_lab(rgb)
    expected = color.rgb2lab(rgb.T.numpy())
    np.testing.assert_allclose(lab.T * torch.tensor([100, 255, 255]) - torch.tensor([0, 128, 128]), expected, atol=2e-3)
    torch.testing.assert_close(lab_to_rgb(lab), rgb, atol=1e-9, rtol=0)


@pytest.mark.parametrize("space", ["lab", "luminance"])
def test_channels_of_a_space_are_matched(space: str) -> None:
    """Muted colours, so that nothing is clipped: the channels agree up to the rounding of 8 bits."""
    x, y = picture(1), picture(4)
    forward = SPACES[space].forward
    made, target = (
        forward(torch.from_numpy(each).permute(2, 0, 1).float() / 255).flatten(1).sort(1).values
        for each in (match_picture(x, y, space=space), y)
    )
    assert (made - target).abs().mean() < 2 / 255
    if space == "luminance":
        change = match_picture(x, y, space=space).astype(int) - x
        assert np.ptp(change, axis=-1).max() <= 1, "all channels change alike"


def distance(a: Any, b: Any) -> float:
    """Mean 1-Wasserstein distance along fixed random directions of colour space."""
    axes = np.random.default_rng(7).normal(size=(3, 40))
    axes /= np.linalg.norm(axes, axis=0)
    rows = (np.sort(each.reshape(-1, 3).astype(float) @ axes, axis=0) for each in (a, b))
    return float(np.abs(np.subtract(*rows)).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_a_joint_match_reaches_the_joint_distribution_and_exact_channels(kind: str) -> None:
    x, y = picture(1, kind), picture(2, kind)
    y[..., 1] = y[..., 0] // 2 + 9 if kind != "float32" else y[..., 0] / 2  # correlated channels
    joint, channels = (match_picture(x, y, method=m) for m in ("joint", "channels"))
    assert distance(joint, y) < 0.5 * distance(channels, y)
    np.testing.assert_array_equal(ordered(joint), ordered(y))
    np.testing.assert_array_equal(match_picture(x, y, method="joint", seed=0), joint)


def test_a_photograph_has_the_colours_of_its_reference() -> None:
    made, y = match_picture(photos()["rocket"], photos()["coffee"]), read_picture(photos()["coffee"])
    count = [
        torch.stack([torch.bincount((row * 255).round().int().flatten(), minlength=256) for row in p.rgb]).double()
        for p in (made, y)
    ]
    count = [c.cumsum(1) / c.sum(1, keepdim=True) for c in count]
    pixels = made.rgb[0].numel()
    assert (count[0] - count[1]).abs().max() <= 1 / pixels, "every level is as frequent as in the reference"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["channels", "joint"])
def test_on_a_gpu(kind: str, method: str) -> None:
    x, y = picture(1, kind), picture(2, kind)
    made = match_picture(x, prepare_reference(y, method=method), device="cuda")  # a reference on the CPU
    np.testing.assert_array_equal(ordered(made), ordered(y))
    same = match_picture(x, y, ties="position", device="cuda")
    np.testing.assert_array_equal(same, match_picture(x, y, ties="position"))


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), "auto"])
def test_a_strength_outside_0_and_1_is_refused(strength: float) -> None:
    x = np.zeros((2, 2, 3), np.uint8)
    with pytest.raises(SettingError, match="strength"):
        match_picture(x, x, strength=strength)


def test_tolerance_gives_similar_levels_the_same_colour() -> None:
    g = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 3, (3, 40, 60), generator=g)
    content = torch.where(torch.arange(60) < 40, noise, 180 + 20 * noise).to(torch.uint8)
    reference = torch.randint(0, 256, (3, 50, 50), generator=g).to(torch.uint8)
    exact, calm = (match_picture(content, reference, tolerance=t).float() for t in (0.0, 0.1))
    assert calm[..., :40].std() < 2 < 40 < exact[..., :40].std()
    close = efdm.efdm(content[None].float(), reference[None].float(), tolerance=0.1)[0]
    assert (calm - close).abs().max() <= 2  # the order of ties inside a level, and rounding
    floats = match_picture(content / 255, reference / 255, tolerance=0.1)
    assert (floats * 255 - close).abs().max() < 1e-3
    for wrong in ({"tolerance": -1.0}, {"tolerance": 0.1, "method": "joint"}):
        with pytest.raises(SettingError, match="tolerance"):
            match_picture(content, reference, **wrong)


@pytest.mark.parametrize("form", [np.asarray, lambda x: torch.from_numpy(x)[None]], ids=["array", "tensor"])
def test_no_data_is_compared_in_the_dtype_of_the_content(form: Any) -> None:
    """float16 stores -9999 as -10000."""
    x, y = np.linspace(-1, 1, 64, dtype="f2").reshape(8, 8), np.linspace(0, 1, 64, dtype="f2").reshape(8, 8)
    x[:2] = -9999
    made = np.asarray(match_picture(form(x), form(y), nodata=-9999)).reshape(8, 8)
    assert (made[:2] == x[0, 0]).all()
    assert made[2:].min() >= 0


def test_a_constant_channel_stays_constant_with_a_tolerance() -> None:
    flat, y = np.full((64, 64), 7, np.uint8), np.random.default_rng(0).integers(0, 255, (64, 64)).astype(np.uint8)
    assert len(np.unique(match_picture(flat, y))) > 200
    made = np.unique(match_picture(flat, y, tolerance=0.1))
    assert len(made) == 1
    assert abs(int(made[0]) - y.mean()) <= 1
