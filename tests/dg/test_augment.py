import re

import pytest
import torch
import torch.nn.functional as F
from pixels import NEAR, check_captured, noise, normalized, record_draws, resized, seeded
from torch import Tensor
from torchvision.transforms import functional

from efdm.dg import augment
from efdm.dg.augment import AUGMENTATIONS, augment_batch
from efdm.recognition.pixels import prepared, resampled


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The random numbers that `augment` drew, by call."""
    return record_draws(augment, monkeypatch)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize(("side", "size"), [(37, 32), (32, 32), (30, 47)])
def test_shape_type_and_layout(name: str, side: int, size: int, device: torch.device) -> None:
    out = augment_batch(noise(5, side).to(device), name, size)
    assert out.shape == (5, 3, size, size)
    assert out.dtype == torch.float32
    assert out.device.type == device.type
    assert out.is_contiguous(memory_format=torch.channels_last)
    low, high = normalized(torch.zeros(1, 3, 1, 1)), normalized(torch.full((1, 3, 1, 1), 255.0))
    assert ((out.cpu() >= low - 1e-4) & (out.cpu() <= high + 1e-4)).all(), "no overshoot"


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_same_seed_same_result_and_input_unchanged(name: str) -> None:
    images = noise(6, 40)
    before = images.clone()
    first, again, other = (augment_batch(images, name, 32, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name == "none")
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", [n for n in AUGMENTATIONS if n != "none"])
def test_pictures_are_augmented_independently(name: str) -> None:
    images = noise(1, 40).expand(64, -1, -1, -1)
    different = {tuple(row) for row in augment_batch(images, name, 40, seeded(0)).flatten(1)[:, :50].tolist()}
    assert len(different) > 15


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_pictures_do_not_depend_on_each_other(name: str) -> None:
    images, others = noise(4, 36), noise(4, 36, seed=1)
    mixed = torch.cat([images[:2], others[2:]])
    alone, among = (augment_batch(x, name, 32, seeded(5)) for x in (images, mixed))
    assert torch.equal(alone[:2], among[:2])


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_no_padding_is_visible(name: str) -> None:
    """A picture of one colour stays one colour."""
    images = noise(16, 1).expand(-1, -1, 45, 45)
    out = augment_batch(images, name, 40, seeded(1))
    assert (out.amax((2, 3)) - out.amin((2, 3))).max() < 1e-5


def test_pictures_must_be_square_uint8() -> None:
    for images in (torch.zeros(1, 3, 8, 8), noise(1, 8, 9)):
        with pytest.raises(ValueError, match=rf"uint8 .*got {images.dtype} {re.escape(str(tuple(images.shape)))}"):
            augment_batch(images, "paper", 8)


def test_equal_sizes_need_no_interpolation(drawn: list[Tensor]) -> None:
    """Resampling the whole picture at its own size is exact."""
    images = noise(64, 45)
    out = augment_batch(images, "paper", 45, seeded(0))
    chance, _, _, mirror = drawn[0]
    plain = prepared(images, 45)
    whole = chance >= 0.5
    assert torch.equal(out[whole & (mirror >= 0.5)], plain[whole & (mirror >= 0.5)])
    assert torch.equal(out[whole & (mirror < 0.5)], plain[whole & (mirror < 0.5)].flip(-1))


@pytest.mark.parametrize(("side", "size", "large"), [(227, 224, 252), (32, 32, 36), (50, 41, 46)])
def test_paper_enlarges_crops_and_flips(side: int, size: int, large: int, drawn: list[Tensor]) -> None:
    images = noise(12, side)
    out = augment_batch(images, "paper", size, seeded(2))
    assert len(drawn) == 1
    for n, (chance, down, right, mirror) in enumerate(drawn[0].T.tolist()):
        expected = resized(images[n : n + 1], (size, size))
        if chance < 0.5:
            top, left = int(down * (large - size + 1)), int(right * (large - size + 1))
            expected = resized(images[n : n + 1], (large, large))[..., top : top + size, left : left + size]
        if mirror < 0.5:
            expected = expected.flip(-1)
        torch.testing.assert_close(out[n : n + 1], normalized(expected), **NEAR)


def test_digits_shift_by_whole_pixels_without_flip() -> None:
    images = noise(200, 32)
    out = augment_batch(images, "digits", 32, seeded(0))
    padded = F.pad(images.float(), (2, 2, 2, 2), mode="replicate")
    seen = set()
    for n in range(len(images)):
        found = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.allclose(out[n], normalized(padded[n : n + 1, :, top : top + 32, left : left + 32])[0], **NEAR)
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) == 25


def test_random_resized_crops() -> None:
    windows = augment._windows_of_area(5000, 227, (0.7, 1.0), torch.device("cpu"), seeded(0))
    tops, lefts, heights, widths = windows
    assert (tops >= 0).all()
    assert (lefts >= 0).all()
    assert (tops + heights <= 227 + 1e-3).all()
    assert (lefts + widths <= 227 + 1e-3).all()
    area, ratio = heights * widths / 227**2, (widths / heights).log()
    assert 0.7 - 1e-3 <= area.min() < 0.71
    assert area.max() <= 1 + 1e-3
    assert ratio.abs().max() <= torch.tensor(4 / 3).log() + 1e-3
    assert ratio.mean().abs() < 0.02
    assert heights.std() > 5
    assert (heights - widths).abs().mean() > 5
    down, right = ((a / (227 - b)).nan_to_num(0.5) for a, b in ((tops, heights), (lefts, widths)))
    for reach in (down, right):
        assert 0.45 < reach.mean() < 0.55
        assert reach.std() > 0.25
    assert torch.corrcoef(torch.stack([down, right]))[0, 1].abs() < 0.1


def test_a_crop_that_never_fits_is_the_whole_picture() -> None:
    windows = augment._windows_of_area(8, 50, (1.01, 1.02), torch.device("cpu"), seeded(0))
    assert [w.tolist() for w in windows] == [[0.0] * 8, [0.0] * 8, [50.0] * 8, [50.0] * 8]


def test_domainbed_equals_its_parts(drawn: list[Tensor]) -> None:
    images = noise(40, 48)
    images[:, 0] //= 2  # not gray on average
    out = augment_batch(images, "domainbed", 40, seeded(0))
    _, _, choices = drawn
    windows = augment._windows_of_area(40, 48, (0.7, 1.0), torch.device("cpu"), seeded(0))
    mirror, gray, *amounts = choices
    seen = resampled(images, windows, 40, mirror < 0.5) / 255
    grays = 0
    for n in range(len(images)):
        expected = seen[n]
        for change, u in zip(("brightness", "contrast", "saturation"), amounts, strict=False):
            expected = getattr(functional, f"adjust_{change}")(expected, (0.7 + 0.6 * u[n]).item())
        expected = functional.adjust_hue(expected, (-0.3 + 0.6 * amounts[3][n]).item())
        if gray[n] < 0.1:
            expected, grays = functional.rgb_to_grayscale(expected, 3), grays + 1
        torch.testing.assert_close(out[n : n + 1], normalized(expected[None] * 255), **NEAR)
    assert 0 < grays < 12


@pytest.mark.gpu
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_in_a_captured_graph(name: str) -> None:
    check_captured(lambda images, generator: augment_batch(images, name, 32, generator), noise(6, 37), noise(6, 37, seed=1))
