import re

import pytest
import torch
from pixels import NEAR, noise, normalized, resized
from torch import Tensor
from torchvision.transforms import functional

from efdm.recognition.pixels import Windows, brightness, contrast, hue, prepared, resampled, saturation


@pytest.mark.parametrize(("stored", "size"), [
    ((227, 227), 224), ((32, 32), 32), ((33, 33), 47), ((64, 64), 64), ((128, 64), (256, 128)), ((60, 31), (60, 31)),
])  # fmt: skip
def test_prepared_resizes_and_normalizes(stored: tuple[int, int], size: int | tuple[int, int]) -> None:
    images = noise(2, *stored)
    shape = (size, size) if isinstance(size, int) else size
    out = prepared(images, size)
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, normalized(resized(images, shape)), **NEAR)


@pytest.mark.parametrize(
    "images", [torch.zeros(1, 3, 8, 8), torch.zeros(1, 8, 8, 3, dtype=torch.uint8)], ids=["floats", "channels last"]
)
def test_pictures_must_be_uint8(images: Tensor) -> None:
    with pytest.raises(ValueError, match=rf"uint8 .*got {images.dtype} {re.escape(str(tuple(images.shape)))}"):
        prepared(images, 8)


def test_a_window_of_whole_pixels_is_a_crop() -> None:
    images = noise(2, 60, 25)
    windows = Windows(*(torch.tensor(v) for v in ([7.0, 0.0], [2.0, 5.0], [40.0, 40.0], [20.0, 20.0])))
    out = resampled(images, windows, (40, 20), torch.tensor([False, True]))
    assert torch.equal(out[0], images[0, :, 7:47, 2:22].float())
    assert torch.equal(out[1], images[1, :, 0:40, 5:25].float().flip(-1))


def test_a_rectangular_window_is_stretched() -> None:
    """Away from the border it equals interpolation of the crop."""
    images = noise(1, 60)
    windows = Windows(*(torch.tensor([v]) for v in (10.0, 5.0, 30.0, 45.0)))
    expected = resized(images[..., 10:40, 5:50], (50, 50))
    torch.testing.assert_close(resampled(images, windows, 50)[..., 1:-1, 1:-1], expected[..., 1:-1, 1:-1], rtol=0, atol=0.05)


COLOURS = {
    "brightness": (brightness, "adjust_brightness", (0.7, 1.0, 1.3)),
    "contrast": (contrast, "adjust_contrast", (0.7, 1.0, 1.3)),
    "saturation": (saturation, "adjust_saturation", (0.7, 1.0, 1.3)),
    "hue": (hue, "adjust_hue", (-0.3, 0.0, 0.21)),
}


@pytest.mark.parametrize("name", COLOURS)
def test_colours_equal_torchvision(name: str) -> None:
    change, theirs, amounts = COLOURS[name]
    pixels = noise(3, 16) / 255
    pixels[:, :, :2] = pixels[:, :1, :2]  # gray pixels have no hue
    pixels[:, :, 2, :3] = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])  # two equal channels
    out = change(pixels, torch.tensor(amounts))
    for image, amount, found in zip(pixels, amounts, out, strict=True):
        torch.testing.assert_close(found, getattr(functional, theirs)(image, amount), rtol=0, atol=2e-5)


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    images = noise(3, 45)
    windows = Windows(*(torch.tensor(v) for v in ([0.0, 1.5, 3.2], [2.0, 0.3, 0.0], [45.0, 40.1, 33.3], [41.7, 30.0, 45.0])))
    mirror = torch.tensor([False, True, False])
    for flipped in (None, mirror):
        on_gpu = resampled(
            images.cuda(), Windows(*(w.cuda() for w in windows)), (40, 30), flipped if flipped is None else mirror.cuda()
        )
        torch.testing.assert_close(on_gpu.cpu(), resampled(images, windows, (40, 30), flipped), rtol=0, atol=0.02)
