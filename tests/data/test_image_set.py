from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from efdm.data import Crops, ImageSet, PictureError, Source, draw_crops, find_pictures, take_crops

SIZES = {"landscape.png": (30, 50), "portrait.png": (44, 31), "square.png": (30, 30), "small.png": (10, 15)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, size in SIZES.items():
        Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(tmp_path / name)
    return tmp_path


def test_pictures_in_order_with_exact_pixels(folder: Path) -> None:
    images = ImageSet.load(folder, min_side=10, workers=3)
    assert images.names == sorted(SIZES)
    assert len(images) == 4
    assert images.sizes.tolist() == [list(SIZES[name]) for name in images.names]
    for name, image in zip(images.names, images.images, strict=True):
        assert image.dtype == torch.uint8
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(Image.open(folder / name)))


def test_sizes(folder: Path) -> None:
    enlarged = ImageSet.load(find_pictures(folder), min_side=30)
    assert enlarged.sizes.tolist() == [[30, 50], [44, 31], [30, 45], [30, 30]]  # only the third is smaller
    assert ImageSet.load(folder, short_side=20).sizes.tolist() == [[20, 33], [28, 20], [20, 30], [20, 20]]


def test_damaged_pictures_are_skipped_unless_all_are(folder: Path) -> None:
    whole = (folder / "square.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.jpg").touch()
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    Image.new("RGB", (500, 2)).save(folder / "strip.png")
    seen: list[tuple[int, int]] = []
    images = ImageSet.load(folder, progress=lambda at: seen.append((at.done, at.total)))
    assert images.names == sorted(SIZES)
    reasons = dict(images.skipped)
    assert list(reasons) == ["cut.png", "empty.jpg", "gone.png", "strip.png"]
    expected = ("cut short", "is empty", "does not exist", "strip of 2 x 500")
    assert all(part in reason for part, reason in zip(expected, reasons.values(), strict=True))
    assert all(reason.startswith(f"{folder / name} ") for name, reason in reasons.items())
    assert seen == [(n, 8) for n in range(1, 9)]
    for name in SIZES:
        (folder / name).unlink()
    with pytest.raises(PictureError, match=r"none of 4 pictures.*cut\.png is cut short"):
        ImageSet.load(folder)


def test_an_interrupt_cancels_pending_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many, started, original = find_pictures(folder) * 200, list[str](), Source.open
    monkeypatch.setattr(Source, "open", lambda source: started.append(source.name) or original(source))

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ImageSet.load(many, workers=1, progress=stop)
    assert 0 < len(started) < len(many) // 2


def test_transparent_parts_are_white_and_16_bits_become_8(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.fromarray(np.full((8, 8), 257 * 77 + 100, np.uint16)).save(tmp_path / "deep.png")
    clear, deep = ImageSet.load(tmp_path, min_side=8).images
    assert clear.shape == (3, 8, 8)
    assert clear.unique().tolist() == [255]
    assert deep.unique().tolist() == [77]


def test_crops_are_plain_slices(folder: Path, device: torch.device) -> None:
    images = ImageSet.load(folder, min_side=30)
    indices = torch.tensor([3, 0, 1, 2, 0, 0])
    tops, lefts = torch.tensor([0, 1, 14, 0, 0, 5]), torch.tensor([14, 0, 1, 0, 34, 7])
    flips = torch.tensor([False, True, False, True, False, True])
    size = 16
    moved = images.to(device)
    taken = take_crops(moved, Crops(*(v.to(device) for v in (indices, tops, lefts, flips))), size)
    drawn = draw_crops(images.sizes, indices, size, torch.Generator(device).manual_seed(1))
    assert {values.device.type for values in drawn} == {device.type}
    assert taken.is_contiguous()
    assert taken.dtype == torch.uint8
    for crop, i, top, left, flip in zip(taken.cpu(), indices, tops, lefts, flips, strict=True):
        plain = images.images[i][:, top : top + size, left : left + size]
        assert torch.equal(crop, plain.flip(-1) if flip else plain)
    with pytest.raises(ValueError, match="min_side=31"):
        take_crops(moved, drawn, 31)


@pytest.mark.parametrize("size", [1, 29, 30])
def test_crops_are_drawn_from_all_valid_places(size: int) -> None:
    sizes = torch.tensor([[30, 33], [31, 30]])
    indices = torch.arange(2).repeat(6000)
    crops = draw_crops(sizes, indices, size, torch.Generator().manual_seed(0))
    for picture in range(2):
        of = crops.indices == picture
        for drawn, length in zip((crops.tops[of], crops.lefts[of]), sizes[picture].tolist(), strict=True):
            assert sorted(drawn.unique().tolist()) == list(range(length - size + 1))
    assert 0.45 < crops.flips.float().mean() < 0.55
