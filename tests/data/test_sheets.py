"""Contact sheets: the places of pictures, paper and labels."""

import pytest
import torch
from torch import Tensor

from efdm.data.sheets import PAPER, sheet

WHITE = torch.tensor(PAPER)[:, None, None] / 255


def plain(red: float, green: float, blue: float, height: int = 20, width: int = 20) -> Tensor:
    return torch.tensor([red, green, blue], dtype=torch.float32)[:, None, None].expand(3, height, width)


RED, GREEN, BLUE = plain(1, 0, 0), plain(0, 1, 0), plain(0, 0, 1)


def inked(area: Tensor) -> bool:
    return bool(((area - WHITE).abs() > 0.1).any())


def test_places_of_pictures() -> None:
    page = sheet([[RED, GREEN], [None, BLUE]], cell=20, gap=4)
    assert torch.equal(sheet([[RED], [GREEN, BLUE]], cell=8, gap=1), sheet([[RED, None], [GREEN, BLUE]], cell=8, gap=1))
    assert page.shape == (3, 52, 52)
    assert page.dtype == torch.float32
    expected = WHITE.repeat(1, 52, 52)
    expected[:, 4:24, 4:24] = RED
    expected[:, 4:24, 28:48] = GREEN
    expected[:, 28:48, 28:48] = BLUE
    assert torch.equal(page, expected)


def test_cells_show_the_middle_and_need_not_be_square() -> None:
    tall = plain(1, 0, 0, 40, 20)
    page = sheet([[tall, tall], [None, tall]], cell=(40, 20), gap=2)
    assert page.shape == (3, 2 * 42 + 2, 2 * 22 + 2)
    assert torch.equal(page[:, 44:84, 24:44], tall)
    assert not inked(page[:, 44:84, 2:22])
    wide = torch.cat([RED, GREEN, BLUE], -1)  # 20 x 60
    assert torch.equal(sheet([[wide]], cell=20, gap=0), GREEN)
    assert torch.equal(sheet([[wide]], cell=(20, 10), gap=0), plain(0, 1, 0, 20, 10))


def test_gray_half_precision_and_values_out_of_range() -> None:
    page = sheet([[torch.full((1, 9, 9), 2.0, dtype=torch.float16)]], cell=9, gap=0)
    assert torch.equal(page, torch.ones(3, 9, 9))


def test_labels_are_outside_the_cells() -> None:
    cells, gap = 64, 4
    bare = sheet([[RED, GREEN], [BLUE, RED]], cell=cells, gap=gap)
    page = sheet(
        [[RED, GREEN], [BLUE, RED]], cell=cells, gap=gap, title="Styles", row_labels=["cat", "cup"], column_labels=["0", "1"]
    )
    top, left = page.shape[1] - bare.shape[1], page.shape[2] - bare.shape[2]
    assert top > 0
    assert left > 0
    assert torch.equal(page[:, top + gap :, left + gap :], bare[:, gap:, gap:])
    assert inked(page[:, :top])
    assert inked(page[:, top:, :left])


def test_words_of_small_labels_are_separated() -> None:
    """In very small letters, a space after a comma would be invisible."""
    page = sheet([[None] * 4], cell=32, gap=0, title="s, f")
    ink = ((page - WHITE).abs() > 0.1).any(0).any(0).nonzero().flatten()
    assert int(ink.diff().max()) > 5


def test_long_labels_are_shortened() -> None:
    page = sheet([[RED, GREEN]], cell=64, gap=4, column_labels=["x" * 100, ""])
    top = page.shape[1] - 68
    assert inked(page[:, :top, 4:68])
    assert not inked(page[:, :top, 72:])


def test_inputs_are_not_changed() -> None:
    picture = torch.rand(3, 20, 20, requires_grad=True)
    before = picture.detach().clone()
    page = sheet([[picture]], cell=20, gap=0)
    assert torch.equal(page, before)  # a picture of the size of a cell is not resampled
    page.zero_()
    assert not page.requires_grad
    assert torch.equal(picture, before)


def test_errors() -> None:
    for rows in ([], [[]]):
        with pytest.raises(ValueError, match="at least one picture"):
            sheet(rows)
    for name in ("row_labels", "column_labels"):
        with pytest.raises(ValueError, match=f"2 {name} for 1 "):
            sheet([[RED]], **{name: ["a", "b"]})  # type: ignore[arg-type]
