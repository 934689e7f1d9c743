from typing import get_args

import pytest
import torch
from pixels import NEAR, check_captured, noise, normalized, record_draws, resized, seeded
from torch import Tensor
from torchvision.transforms import functional

from efdm.recognition.pixels import prepared
from efdm.reid import augment
from efdm.reid.augment import Augmentation, augment_batch, random_erase

SIZE = (40, 20)
NAMES = get_args(Augmentation)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The random numbers that `augment` drew, by call."""
    return record_draws(augment, monkeypatch)


@pytest.mark.parametrize("names", [(), *((name,) for name in NAMES), NAMES], ids=str)
def test_shape_layout_and_seed(names: tuple[str, ...], device: torch.device) -> None:
    images = noise(8, 60, 25).to(device)
    first, again, other = (augment_batch(images, names, SIZE, torch.Generator(device).manual_seed(s)) for s in (3, 3, 4))
    assert first.shape == (8, 3, *SIZE)
    assert first.dtype == torch.float32
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (not names)


def test_without_augmentation_pictures_are_those_of_the_test() -> None:
    for size in (SIZE, (33, 47)):
        assert torch.equal(augment_batch(noise(3, *SIZE), (), size), prepared(noise(3, *SIZE), size))


def test_flips(drawn: list[Tensor]) -> None:
    out, plain = augment_batch(noise(32, *SIZE), ("flip",), SIZE, seeded(0)), prepared(noise(32, *SIZE), SIZE)
    mirrored = drawn[0][3] < 0.5
    assert 0 < mirrored.sum() < 32
    assert torch.equal(out[mirrored], plain[mirrored].flip(-1))
    assert torch.equal(out[~mirrored], plain[~mirrored])


def test_crops_of_enlarged_pictures(drawn: list[Tensor]) -> None:
    images = noise(16, *SIZE)
    out = augment_batch(images, ("crop",), SIZE, seeded(0))
    large = resized(images, (45, 22))
    for n, (chance, down, right) in enumerate(drawn[0][:3].T.tolist()):
        top, left = int(down * 6), int(right * 3)
        crop = large[n : n + 1, :, top : top + 40, left : left + 20]
        expected = normalized(crop) if chance < 0.5 else prepared(images[n : n + 1], SIZE)
        torch.testing.assert_close(out[n : n + 1], expected, **NEAR)


def test_jitter_equals_torchvision(drawn: list[Tensor]) -> None:
    images = noise(6, *SIZE)
    out = augment_batch(images, ("jitter",), SIZE, seeded(0))
    for n, (light, spread) in enumerate(drawn[0][4:].T.tolist()):
        bright = functional.adjust_brightness(images[n] / 255, 0.8 + 0.4 * light)
        expected = functional.adjust_contrast(bright, 0.85 + 0.3 * spread)
        torch.testing.assert_close(out[n], normalized(expected[None] * 255)[0], **NEAR)


def test_a_rectangle_is_erased_in_half_of_the_pictures() -> None:
    """Its area, aspect ratio and place have the published distributions."""
    height, width = 64, 32
    gone = (random_erase(torch.ones(4000, 3, height, width), seeded(0)) == 0).all(1)
    hit = gone.flatten(1).any(1)
    assert 0.45 < hit.float().mean() < 0.55
    rows, columns = gone[hit].any(2), gone[hit].any(1)
    tall, wide = rows.sum(1), columns.sum(1)
    assert torch.equal(gone[hit], rows[:, :, None] & columns[:, None, :]), "a rectangle"
    share, ratio = tall * wide / (height * width), tall / wide
    assert 0.01 < share.min() < 0.04
    assert 0.36 < share.max() < 0.42
    assert 0.2 < ratio.min() < 0.4
    assert 2.8 < ratio.max() < 4
    for starts, sides, length in ((rows.int().argmax(1), tall, height), (columns.int().argmax(1), wide, width)):
        assert (starts + sides <= length).all()
        room = starts / (length - sides)
        assert 0.45 < room.mean() < 0.55
        assert (room.min(), room.max()) == (0, 1)
    # the same mean sides as a loop that draws until a rectangle fits
    expected, rng = list[tuple[int, int]](), seeded(1)
    while len(expected) < 2000:
        u, v = torch.rand(2, generator=rng).tolist()
        area, ratio = (0.02 + 0.38 * u) * height * width, 0.3 + (1 / 0.3 - 0.3) * v
        sides = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        expected += [sides] if sides[0] < height and sides[1] < width else []
    found = torch.stack([tall, wide]).float().mean(1)
    torch.testing.assert_close(found, torch.tensor(expected).float().mean(0), rtol=0.04, atol=0)


@pytest.mark.gpu
def test_in_a_captured_graph() -> None:
    pictures = noise(6, *SIZE), noise(6, *SIZE, seed=1)
    check_captured(lambda images, generator: augment_batch(images, NAMES, SIZE, generator), *pictures)
