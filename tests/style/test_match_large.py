"""Chunks give the result of the whole picture."""

from pathlib import Path

import numpy as np
import pytest
import torch

from efdm.errors import SettingError
from efdm.progress import Progress
from efdm.style import match_picture, prepare_reference
from efdm.style.levels import BINS, dither, make_curves, map_bins
from efdm.style.match_large import match_array, read_quantiles


def photo(kind: str, seed: int = 0, size: tuple[int, int] = (61, 17)) -> np.ndarray:
    top = {"uint8": 255, "uint16": 65535}[kind]
    shape = (*size, 3)
    values = np.random.default_rng(seed).normal(0.5, 0.02 + 0.2 * seed, shape) + np.linspace(0, 0.1, size[0])[:, None, None]
    return (np.clip(values, 0, 1) * top).astype(kind)


@pytest.mark.parametrize("ties", ["smooth", "dither", "position"])
@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_chunks_equal_the_whole(kind: str, ties: str) -> None:
    x, y = photo(kind), photo(kind, 1, (40, 40))
    x[3:5], mask = 0, np.random.default_rng(2).random((61, 17)) < 0.8
    reference = prepare_reference(y)
    options = {"ties": ties, "mask": mask, "nodata": 0, "seed": 3, "strength": 0.8}
    expected = match_picture(x, reference, **options)  # type: ignore[arg-type]
    for rows in (7, 40):
        out = np.zeros_like(x)
        match_array(x, reference, out, rows=rows, **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("space", ["lab", "luminance"])
def test_chunks_in_other_spaces(space: str) -> None:
    x, reference = photo("uint8"), prepare_reference(photo("uint8", 1), space=space)
    out = np.zeros_like(x)
    match_array(x, reference, out, rows=9)
    np.testing.assert_array_equal(out, match_picture(x, reference))


def test_memory_maps_and_progress(tmp_path: Path) -> None:
    x, y = photo("uint8")[..., 0], photo("uint8", 1)[..., 0]
    np.save(tmp_path / "x.npy", x)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", x.dtype, x.shape)
    seen: list[Progress] = []
    match_array(np.load(tmp_path / "x.npy", mmap_mode="r"), prepare_reference(y), out, rows=20, progress=seen.append)
    np.testing.assert_array_equal(np.sort(np.load(tmp_path / "out.npy"), axis=None), np.sort(y, axis=None))
    assert [each.done for each in seen] == list(range(9))
    assert {each.total for each in seen} == {8}


@pytest.mark.parametrize(("kind", "tolerance"), [("uint8", 0.0), ("uint16", 0.1), ("float32", 0.0)])
def test_an_array_without_data_is_unchanged(kind: str, tolerance: float) -> None:
    x, out = np.zeros((9, 7, 3), kind), np.ones((9, 7, 3), kind)
    match_array(x, prepare_reference(photo("uint8")), out, nodata=0, tolerance=tolerance, rows=4)
    np.testing.assert_array_equal(out, x)


def test_joint_matches_and_other_channels_are_refused() -> None:
    x = photo("uint8")
    with pytest.raises(SettingError, match="joint"):
        match_array(x, prepare_reference(x, method="joint"), x)
    with pytest.raises(SettingError, match="1 and 3"):
        match_array(x[..., 0], prepare_reference(x), x)


def test_counts_beyond_32_bits() -> None:
    """Counts of 2^33 values in two bins, without the values: the middle of the first bin starts the second level."""
    n = 2**33
    counts = torch.zeros(1, BINS, dtype=torch.int64)
    counts[0, 5], counts[0, 9] = n // 2, n // 2
    (curve,) = make_curves(counts, torch.tensor([[n // 4, 3 * n // 4, n]]))
    bins = torch.tensor([[5, 9, 5]], dtype=torch.int32)
    assert map_bins(bins.clone(), [curve]).tolist() == [[0, 2, 0]]
    assert curve.first[5] == 2
    curve.first[5] = n // 8  # as if the values before had been mapped
    assert map_bins(bins.clone(), [curve]).tolist() == [[1, 2, 1]]


def test_dither_is_even_and_depends_only_on_the_position() -> None:
    picture = torch.empty(64, 64)
    whole = dither(picture, 5, 0)
    torch.testing.assert_close(whole[20:30], dither(picture[20:30], 5, 20), rtol=0, atol=0)
    assert 0 <= whole.min() < whole.max() < 1
    blocks = whole.unfold(0, 8, 8).unfold(1, 8, 8).mean((-1, -2))
    assert (blocks - 0.5).abs().max() < 0.05, "every block has the same mean, unlike white noise"


@pytest.mark.parametrize("size", [(61, 17), (40, 30)])
def test_floats_in_chunks_equal_the_whole(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative values, both zeros, ties, and more groups of upper halves than one."""
    draw = np.random.default_rng(0)
    x, y = (1 + draw.random((*shape, 1), np.float32) for shape in ((61, 17), size))
    x[40:] *= -1
    x[5:9], x[9:12], x[20] = 0.0, -0.0, 0.25
    x[30, 3:6], y[1] = np.nan, np.inf
    mask = draw.random((61, 17)) < 0.9
    reference = prepare_reference(y)
    monkeypatch.setattr("efdm.style.match_large.GROUP", 100)
    for strength in (1.0, 0.5) if size == (61, 17) else (1.0,):
        expected = match_picture(x, reference, ties="position", mask=mask, strength=strength)
        out = np.zeros_like(x)
        match_array(x, reference, out, mask=mask, strength=strength, rows=25)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_chunks_on_a_gpu(kind: str) -> None:
    x, y = (photo("uint8", seed).astype(kind) for seed in (0, 1))
    out, expected = np.zeros_like(x), np.zeros_like(x)
    match_array(x, prepare_reference(y), expected, ties="position", rows=25)
    match_array(x, prepare_reference(y, device="cuda"), out, ties="position", rows=25, device="cuda")
    np.testing.assert_array_equal(out, expected)


def test_float16_and_float64_in_chunks() -> None:
    x, y = (np.random.default_rng(i).random((9, 8)).astype(np.float16) for i in (0, 1))
    out = np.zeros_like(x)
    match_array(x, prepare_reference(y), out, rows=2)
    np.testing.assert_array_equal(np.sort(out, axis=None), np.sort(y, axis=None))
    with pytest.raises(SettingError, match="float32"):
        match_array(x.astype(np.float64), prepare_reference(y), out)


def test_quantiles_of_ranks_beyond_32_bits() -> None:
    values, n = torch.linspace(0, 1, 2**20), 2**44
    rank = torch.tensor([0, n // 2, n - 1])
    torch.testing.assert_close(read_quantiles(values, rank, n), torch.tensor([0.0, 0.5, 1.0]), atol=1e-5, rtol=0)
    same = torch.arange(2**20)
    torch.testing.assert_close(read_quantiles(values, same, 2**20), values, rtol=0, atol=0)
