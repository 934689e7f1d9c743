"""Metrics of stylized images: values for equal images, invariances, and published definitions."""

import importlib.util
import sys

import pytest
import torch
from training import slim_vgg

from efdm.models.weights import MissingWeights, find
from efdm.ops import ChannelStats, adain, efdm
from efdm.style import measures
from efdm.style.measures import Metrics, edge_ssim, edges, gram_distance, lpips, lpips_heads, moment_errors, style_distance


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    return Metrics(slim_vgg(width=16, until="relu5_3"), list(torch.rand(5, 16, generator=torch.Generator().manual_seed(1))))


def pictures(count: int, height: int = 48, width: int = 64) -> torch.Tensor:
    """Return smooth images with edges and flat regions."""
    small = torch.rand(count, 3, 6, 8)
    return torch.nn.functional.interpolate(small, (height, width), mode="bicubic").clamp(0, 1)


def test_lpips_weights_the_differences_of_unit_vectors() -> None:
    a = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2)  # (0.6, 0.8)
    b = torch.tensor([0.0, 7.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2)  # (0, 1)
    heads = [torch.tensor([1.0, 10.0])]
    assert lpips([a], [b], heads).item() == pytest.approx(0.36 + 10 * 0.04, rel=1e-5)
    assert lpips([a], [5 * a], heads).item() == pytest.approx(0, abs=1e-9)


def test_positions_without_activations_are_allowed() -> None:
    dead, live = torch.zeros(1, 3, 4, 4), torch.rand(1, 3, 4, 4)
    assert lpips([dead], [live], [torch.ones(3)]).item() == pytest.approx(1, rel=1e-4)
    assert lpips([dead], [dead], [torch.ones(3)]).item() == 0


def test_heads_are_read_without_importing_lpips() -> None:
    if importlib.util.find_spec("lpips") is None:
        pytest.skip("lpips is not installed")
    assert [len(h) for h in lpips_heads()] == [64, 128, 256, 512, 512]
    assert all((h >= 0).all() for h in lpips_heads())
    assert "lpips" not in sys.modules


def test_missing_heads_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingWeights, match="pip install --no-deps lpips"):
        lpips_heads()


def test_a_step_from_black_to_white_has_magnitude_one() -> None:
    step = torch.zeros(1, 3, 8, 8)
    step[..., 4:] = 1
    assert edges(step)[0, 0, 3].tolist() == pytest.approx([0, 0, 0, 1, 1, 0, 0, 0])
    assert torch.allclose(edges(step.mT), edges(step).mT)


def test_ssim_agrees_with_scikit_image() -> None:
    skimage = pytest.importorskip("skimage.metrics")
    a, b = torch.rand(2, 1, 20, 26, dtype=torch.float64)
    options = {"win_size": 11, "gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    _, full = skimage.structural_similarity(a[0].numpy(), b[0].numpy(), full=True, **options)
    assert measures.ssim(a[None], b[None]).item() == pytest.approx(full[5:-5, 5:-5].mean(), abs=1e-6)


def test_edge_ssim_ignores_colours_and_detects_shuffled_pixels() -> None:
    content = pictures(1)
    recoloured = content[:, [1, 2, 0]] * 0.9
    shuffled = content.flatten(2)[..., torch.randperm(48 * 64)].view_as(content)
    assert edge_ssim(content, content).item() == pytest.approx(1)
    assert edge_ssim(recoloured, content).item() > 0.6 > edge_ssim(shuffled, content).item()
    assert edge_ssim(content[..., :5, :7], content[..., :5, :7]).item() == pytest.approx(1)  # smaller than a window


def test_style_distance_is_in_standard_deviations_and_ignores_positions() -> None:
    style = torch.randn(2, 4, 30, 30)
    moved = style.flatten(2)[..., torch.randperm(900)].view_as(style)
    assert style_distance(moved, style).abs().max() == 0
    shift = style.flatten(2).std(-1)[..., None, None] * torch.tensor([0.5, 2.0]).view(2, 1, 1, 1)
    assert style_distance(moved + shift, style).tolist() == pytest.approx([0.5, 2.0], rel=1e-4)


def test_style_distance_of_another_size() -> None:
    style = torch.rand(1, 3, 40, 40)
    assert style_distance(style.repeat(1, 1, 2, 1), style).item() < 1e-3
    assert style_distance(style[..., ::2, ::2] + 0.3, style).item() == pytest.approx(0.3 * 12**0.5, rel=0.1)


def test_matching_removes_the_errors_of_the_matched_moments() -> None:
    content, style = torch.rand(1, 5, 20, 20) ** 3, torch.randn(1, 5, 20, 20).exp()
    exact, two = efdm(content, style), adain(content, style, eps=0)
    assert max(e.item() for e in moment_errors(exact, style).values()) < 1e-5
    errors = {k: v.item() for k, v in moment_errors(two, style).items()}
    assert list(errors) == list(ChannelStats._fields)
    assert max(errors["mean"], errors["std"]) < 1e-4 < 0.05 < min(errors["skewness"], errors["kurtosis"])
    assert style_distance(exact, style) == 0 < style_distance(two, style) < style_distance(content, style)


def test_gram_distance_is_relative() -> None:
    style = torch.rand(2, 6, 9, 9)
    assert gram_distance(style, style).abs().max() == 0
    assert gram_distance(2 * style, style).tolist() == pytest.approx([3, 3], rel=1e-5)
    assert torch.allclose(gram_distance(5 * style.flip(0), 5 * style), gram_distance(style.flip(0), style))


def test_constant_channels_are_skipped_and_faint_ones_on_request() -> None:
    style = torch.randn(1, 3, 20, 20)
    output = style + style.flatten(2).std(-1)[..., None, None]
    style[:, 1] = 0.25  # dead
    assert style_distance(output, style).item() == pytest.approx(1, rel=1e-4)
    style[:, 1] = output[:, 1] * 5e-3
    assert style_distance(output, style).item() > 40
    assert style_distance(output, style, faint="dropped").item() == pytest.approx(1, rel=1e-4)


def test_a_constant_style_gives_nan() -> None:
    output, style = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    style[0] = 0.5
    for faint in ("kept", "dropped"):
        distance = style_distance(output, style, faint=faint)
        assert distance.isnan().tolist() == [True, False]
    assert all(e.isnan().tolist() == [True, False] for e in moment_errors(output, style).values())


def test_equal_images_have_zero_distance(metrics: Metrics) -> None:
    content, style = metrics.extract(pictures(2)), metrics.extract(pictures(2))
    same, styled = metrics.measure(content, content, style), metrics.measure(style, content, style)
    assert tuple(same) == measures.NAMES
    assert all(v.shape == (2,) for v in same.values())
    assert same["lpips"].abs().max() == 0
    assert same["edge_ssim"].min() == pytest.approx(1)
    for name in ("style_distance", "style_distance_robust", "gram_distance", "kurtosis_error"):
        assert styled[name].abs().max() == 0 < same[name].min(), name


def test_images_of_a_batch_are_measured_separately(metrics: Metrics) -> None:
    output, content, style = pictures(3), pictures(3), pictures(3, 40, 40)
    together = metrics.measure(metrics.extract(output), metrics.extract(content), metrics.extract(style))
    alone = metrics.measure(metrics.extract(output[1:2]), metrics.extract(content[1:2]), metrics.extract(style[1:2]))
    for name, values in together.items():
        assert values[1].item() == pytest.approx(alone[name].item(), rel=1e-3, abs=1e-5), name


def test_pictures_of_different_sizes_are_refused(metrics: Metrics) -> None:
    content = metrics.extract(pictures(1))
    with pytest.raises(ValueError, match="same shape"):
        metrics.measure(metrics.extract(pictures(1, 48, 48)), content, content)


def test_lpips_grows_with_noise() -> None:
    if importlib.util.find_spec("lpips") is None:
        pytest.skip("lpips is not installed")
    try:
        metrics = measures.load_metrics(vgg=find("vgg16"))
    except MissingWeights as missing:
        pytest.skip(str(missing))
    content = pictures(1, 64, 64)
    reference = metrics.extract(content)
    noisy = [metrics.extract(content + s * torch.randn_like(content)) for s in (0.02, 0.1, 0.3)]
    values = [metrics.measure(n, reference, reference)["lpips"].item() for n in noisy]
    assert values == sorted(values)
    assert 0.01 < values[0] < values[2] < 1.5
