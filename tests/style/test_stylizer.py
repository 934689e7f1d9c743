"""What `Stylizer` computes: sizes, matching, colours, regions."""

import pytest
import torch
from style.test_tiles import randomized
from torch import Tensor

from efdm.data import Picture
from efdm.ops import MATCHERS, blend, interpolate_styles
from efdm.style.color import recolor
from efdm.style.look import content_cells, coverage, paste_inside, style_cells
from efdm.style.pipeline import run_network, transfer
from efdm.style.stylizer import Stylizer


def close(one: Tensor, other: Tensor) -> bool:
    """Return True for equal images, up to roundings that swap two neighbouring ranks."""
    off = (one - other).abs()
    return bool(off.max() < 2e-2 and off.mean() < 1e-3)


def half(h: int, w: int) -> Tensor:
    mask = torch.zeros(h, w, dtype=torch.bool)
    mask[:, : w // 2] = True
    return mask


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (23, 1), (2, 3), (33, 47)], ids=str)
@pytest.mark.parametrize(("style", "working"), [((21, 34), "auto"), ((1, 1), 16), ((50, 40), 64)], ids=str)
def test_output_has_the_size_of_the_content(
    stylizer: Stylizer, size: tuple[int, int], style: tuple[int, int], working: str | int
) -> None:
    made = stylizer.stylize(torch.rand(3, *size), torch.rand(3, *style), size=working)
    assert made.shape == (3, *size)
    assert made.isfinite().all()
    assert made.min() >= 0
    assert made.max() <= 1


def test_batch_equals_single_images(stylizer: Stylizer) -> None:
    contents, look = torch.rand(2, 3, 24, 36), stylizer.prepare(torch.rand(3, 30, 30))
    made = stylizer.stylize(contents, look, preserve_color="content", photoreal="guided")
    for one, content in zip(made, contents, strict=True):
        alone = stylizer.stylize(content, look, preserve_color="content", photoreal="guided")
        assert close(one, alone)


# not "joint": in features this small, its rotations amplify roundings
@pytest.mark.parametrize(
    ("name", "method"), [*(("small", method) for method in MATCHERS if method != "joint"), ("vgg16", "efdm")]
)
def test_agrees_with_transfer(name: str, method: str) -> None:
    network = randomized(name, torch.float32)
    content, style = torch.rand(1, 3, 37, 45), torch.rand(1, 3, 41, 30)
    with torch.no_grad():
        expected = transfer(network, content, network.features(style), method=method).clamp(0, 1)
    assert close(Stylizer(network, "cpu").stylize(content, style, method=method), expected)


def test_strength_blends_with_unmatched_content_features() -> None:
    network = randomized("small", torch.float32)
    content = torch.rand(1, 3, 24, 32)
    match = lambda depth, x: x.flip(-1)  # noqa: E731
    with torch.no_grad():
        full, none = run_network(network, content, match), run_network(network, content, match, strength=0.0)
        torch.testing.assert_close(none, network(content))
        last: list[Tensor] = []
        run_network(network, content, lambda depth, x: last.append(x.flip(-1)) or last[-1])
        between = network.decoder(blend(network.features(content)[-1], last[-1], 0.3))
        torch.testing.assert_close(run_network(network, content, match, strength=0.3), between)
        assert not torch.allclose(full, none, atol=1e-3)


def test_prepared_look_equals_its_style(stylizer: Stylizer) -> None:
    content, style = torch.rand(3, 32, 40), torch.rand(3, 28, 44)
    look = stylizer.prepare(style)
    for options in ({}, {}, {"preserve_color": "content"}):  # the second call uses cached values
        assert torch.equal(stylizer.stylize(content, look, **options), stylizer.stylize(content, style, **options))


@pytest.mark.parametrize("method", MATCHERS)
def test_mixed_styles_are_averaged_after_matching(stylizer: Stylizer, method: str) -> None:
    styles = [torch.rand(3, 32, 40), torch.rand(3, 25, 31) ** 2]
    look = stylizer.prepare(styles, weights=[3, 1])
    x = torch.randn(1, 80, 9, 11)
    for depth in range(3):
        parts = [style[depth] for style in look.features]
        expected = interpolate_styles(x, parts, [0.75, 0.25], method=method)
        torch.testing.assert_close(look.match(x, depth, slice(None), method), expected)
        if MATCHERS[method].channels == "separate":
            some = look.match(x[:, 3:8], depth, slice(3, 8), method)
            torch.testing.assert_close(some, expected[:, 3:8])


def test_full_weight_on_one_style(stylizer: Stylizer) -> None:
    content, styles = torch.rand(3, 24, 24), [torch.rand(3, 20, 20), torch.rand(3, 24, 30)]
    look = stylizer.prepare(styles)
    stylizer.stylize(content, look)  # fills the cache of the equal mixture
    assert close(stylizer.stylize(content, look.mixed([0, 1])), stylizer.stylize(content, styles[1]))


def test_caches_hold_one_content_size(stylizer: Stylizer) -> None:
    look = stylizer.prepare([torch.rand(3, 32, 40), torch.rand(3, 24, 24)])
    contents = [torch.rand(3, 20, 20 + 4 * i) for i in range(3)]
    first = [stylizer.stylize(content, look) for content in contents]
    assert [len(s._cache) for style in look.features for s in style] == [1] * 6  # a resampled copy per style and depth
    assert all(torch.equal(stylizer.stylize(c, look), f) for c, f in zip(contents, first, strict=True))


def test_random_ties_follow_the_seed(stylizer: Stylizer) -> None:
    content, style = torch.full((3, 24, 24), 0.5), torch.rand(3, 24, 24)
    made = [stylizer.stylize(content, style, ties="random", seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_preserved_luminance_of_a_grey_content_is_grey(stylizer: Stylizer) -> None:
    content, style = torch.rand(1, 20, 30).expand(3, 20, 30), torch.rand(3, 20, 30)
    kept = stylizer.stylize(content, style, preserve_color="luminance")
    torch.testing.assert_close(kept[0], kept[1], rtol=0, atol=1e-5)
    assert not torch.equal(stylizer.stylize(content, style, preserve_color="content"), stylizer.stylize(content, style))


def test_recolouring_uses_selected_pixels_only(stylizer: Stylizer) -> None:
    content, style = torch.rand(3, 32, 48), torch.rand(3, 32, 48)
    mask = half(32, 48)

    def colours(content: Tensor, style: Tensor) -> Tensor:
        look = stylizer.prepare(style, masks=mask)
        made = stylizer._recolored(look, recolor, content[None], mask).pictures[0]
        return made[..., mask]

    def tinted(picture: Tensor) -> Tensor:
        return torch.where(mask, picture, picture * torch.tensor([0.1, 0.9, 0.2]).view(3, 1, 1))

    expected = colours(content, style)
    torch.testing.assert_close(colours(tinted(content), style), expected)
    torch.testing.assert_close(colours(content, tinted(style)), expected)
    seen = stylizer.stylize(tinted(content), regions=[(mask, style)], preserve_color="content")
    plain = stylizer.stylize(tinted(content), regions=[(mask, style)])
    assert not torch.allclose(seen[:, mask], plain[:, mask], atol=1e-3)


def test_each_region_gets_the_values_of_its_look(stylizer: Stylizer) -> None:
    content, mask = torch.rand(3, 64, 96), half(64, 96)
    dark, bright = 0.2 * torch.rand(3, 64, 48), 0.8 + 0.2 * torch.rand(3, 64, 48)
    looks = [stylizer.prepare(dark), stylizer.prepare(bright)]
    seen: list[Tensor] = []
    hook = stylizer.network.stages[1].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    stylizer.stylize(content, regions=[(mask, looks[0]), (~mask, looks[1])], tolerance=0.0, strength=1.0)
    hook.remove()
    for i, look in enumerate(looks):
        matched = seen[i].split(12, dim=-1)[i]  # left and right half of the features
        assert torch.equal(matched.flatten(2).sort().values, look.features[0][0].values)


def test_a_region_with_a_masked_style(stylizer: Stylizer) -> None:
    content, style, everywhere = torch.rand(3, 32, 32), torch.rand(3, 48, 64), torch.ones(32, 32)
    look = stylizer.prepare(style, masks=half(48, 64))
    part = stylizer.stylize(content, regions=[(everywhere, look)])
    assert close(part, stylizer.stylize(content, look))
    assert not close(part, stylizer.stylize(content, style))


def test_transparent_pixels_are_ignored_and_unchanged(stylizer: Stylizer) -> None:
    rgb, mask = torch.rand(3, 32, 48), half(32, 48)
    alpha = mask[None].float()
    hidden = torch.where(mask, rgb, torch.zeros(()))
    content = torch.rand(3, 24, 24)
    seen = stylizer.prepare(Picture(hidden, alpha)).features[0][0]
    expected = stylizer.prepare(rgb, masks=mask).features[0][0]
    n = int(expected.mask.sum())  # type: ignore[union-attr]
    # receptive fields cross the edge of the mask, so only cells away from it are equal
    assert (seen.values[..., :n] - expected.values[..., :n]).abs().median() < 0.05
    made = stylizer.stylize(Picture(rgb, alpha), content)
    assert torch.equal(made.rgb[:, ~mask], rgb[:, ~mask])
    assert torch.equal(made.alpha, alpha)


def test_soft_masks_blend(stylizer: Stylizer) -> None:
    content, style = torch.rand(3, 16, 24), torch.rand(3, 16, 24)
    ramp = torch.linspace(0, 1, 24).expand(16, 24)
    made = stylizer.stylize(content, regions=[(ramp, style)])
    full = stylizer.stylize(content, regions=[((ramp > 0).float(), style)])
    assert torch.equal(made[..., 0], content[..., 0])
    assert not torch.equal(made[..., 4], content[..., 4])
    assert (made - content)[..., 4].abs().mean() < 0.5 * (full - content)[..., 4].abs().mean()


def test_opposite_ramps_cover_everything() -> None:
    ramp = torch.linspace(0, 1, 24).expand(16, 24)
    content, output = torch.zeros(1, 3, 16, 24), torch.ones(1, 3, 16, 24)
    assert torch.allclose(paste_inside(output, content, [ramp, 1 - ramp]), output)
    assert torch.equal(paste_inside(output, content, [ramp])[0, 0], ramp)


def test_soft_masks_blend_two_styles(stylizer: Stylizer) -> None:
    content, dark, bright = torch.rand(3, 16, 24), 0.2 * torch.rand(3, 16, 24), 0.8 + 0.2 * torch.rand(3, 16, 24)
    ramp = torch.linspace(0, 1, 24).expand(16, 24)
    regions = [(1 - ramp, dark), (ramp, bright)]
    left, right = (stylizer.stylize(content, regions=[region]) for region in regions)  # blended with the content
    made = stylizer.stylize(content, regions=regions)
    assert close(made, left + right - content)
    assert not close(made, content)


def test_the_last_of_overlapping_regions_applies(stylizer: Stylizer) -> None:
    content, dark, bright = torch.rand(3, 20, 24), 0.2 * torch.rand(3, 20, 24), 0.8 + 0.2 * torch.rand(3, 20, 24)
    left, top = half(20, 24), torch.zeros(20, 24, dtype=torch.bool)
    top[:9] = True  # not on the grid of features
    made = stylizer.stylize(content, regions=[(left, dark), (top, bright)])
    assert torch.equal(made[:, top], stylizer.stylize(content, regions=[(top, bright)])[:, top])
    rest = left & ~top
    assert torch.equal(made[:, rest], stylizer.stylize(content, regions=[(rest, dark)])[:, rest])
    assert torch.equal(made[:, ~(left | top)], content[:, ~(left | top)])
    hidden = stylizer.stylize(content, regions=[(left, bright), (left, dark)], strength=1)
    assert torch.equal(hidden, stylizer.stylize(content, regions=[(left, dark)], strength=1))


@pytest.mark.parametrize("thin", [(slice(9, 10), slice(9, 10)), (slice(None), slice(9, 10))], ids=["pixel", "line"])
def test_thin_masks_are_stylized(stylizer: Stylizer, thin: tuple[slice, slice]) -> None:
    content, mask = torch.rand(3, 24, 24), torch.zeros(24, 24, dtype=torch.bool)
    mask[thin] = True
    dark, bright = 0.2 * torch.rand(3, 24, 24), 0.8 + 0.2 * torch.rand(3, 24, 24)
    made = [stylizer.stylize(content, regions=[(mask, style)]) for style in (dark, bright)]
    assert not torch.allclose(made[0][:, mask], made[1][:, mask], atol=1e-2)
    together = stylizer.stylize(content, regions=[(~mask, dark), (mask, bright)])
    assert not torch.equal(together[:, mask], stylizer.stylize(content, dark)[:, mask])


def test_the_whole_soft_edge_of_a_mask_is_stylized() -> None:
    """If the style began at a value of one half, blended pixels would jump there."""
    noise, ramp = torch.full((16, 32), 3 / 255), torch.linspace(0, 1, 32).expand(16, 32)
    cells = content_cells(torch.cat([noise, ramp], 1), (16, 64), 4)
    assert cells.any(0).nonzero().flatten().tolist() == list(range(8, 16))


def test_coverage_averages_over_pixels_inside_the_image() -> None:
    assert torch.equal(coverage(torch.ones(5, 7, dtype=torch.bool), (5, 7), 4), torch.ones(2, 2))
    thin = torch.zeros(16, 16, dtype=torch.bool)
    thin[3, 3] = True
    assert style_cells(thin, (16, 16), 8).sum() == 1  # covers less than half of any cell


def test_tolerance_of_the_network_applies_unless_given() -> None:
    network = randomized("small", torch.float32)
    network.tolerance = 0.0
    exact = Stylizer(network, "cpu")
    network.tolerance = 0.5
    tolerant = Stylizer(network, "cpu")
    photo, painting = torch.rand(3, 40, 60), torch.rand(3, 30, 50)
    expected = exact.stylize(photo, painting)
    assert not close(tolerant.stylize(photo, painting), expected)
    assert torch.equal(tolerant.stylize(photo, painting, tolerance=0), expected)
    assert torch.equal(tolerant.stylize(photo, painting, ties="fast"), expected)
    assert torch.equal(exact.stylize(photo, painting, tolerance=0.5), tolerant.stylize(photo, painting))
    assert torch.equal(tolerant.stylize(photo, painting, method="hm"), exact.stylize(photo, painting, method="hm"))
    look = tolerant.prepare([painting, painting.flip(0)])
    assert close(tolerant.stylize(photo, look), tolerant.stylize(photo, regions=[(torch.ones(40, 60) > 0, look)]))
