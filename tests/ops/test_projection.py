from __future__ import annotations

import pytest
import torch
from tolerances import close

from efdm import MATCHERS, prepare
from efdm.ops import project


@pytest.mark.parametrize("method", ["efdm", "adain"])
def test_every_sample_is_matched_to_the_nearest_reference(method: str, device: torch.device) -> None:
    references = torch.randn(3, 4, 5, 6, device=device) + torch.tensor([-9.0, 0.0, 9.0], device=device).view(3, 1, 1, 1)
    index = torch.tensor([2, 0, 1, 1, 2], device=device)
    x = references[index] + torch.randn(5, 4, 5, 6, device=device)
    expected = MATCHERS[method](x, references[index], **MATCHERS[method].augmentation)
    close(project(x, prepare(references), method=method), expected)
    close(project(x, prepare(references), 0.25, method=method), torch.lerp(x, expected, 0.25))
    assert torch.equal(project(x, prepare(references), 0.0, method=method), x)


def test_channels_count_equally() -> None:
    """The first channel, of large values, is farther from the first reference, the nine others are nearer."""
    references = torch.stack([torch.zeros(10, 8), torch.ones(10, 8)])
    x = references[:1].clone()
    x[:, 0] = 1.0
    scale = torch.full((10, 1), 1.0)
    scale[0] = 1000.0
    out = project(scale * x, prepare(scale * references))
    assert torch.equal(out, scale * references[:1])


def test_layouts_sizes_and_dtypes(device: torch.device) -> None:
    references, x = prepare(torch.randn(2, 3, 40, device=device)), torch.randn(4, 3, 5, 6, device=device)
    out = project(x, references)
    assert out.shape == x.shape
    close(project(x.movedim(1, -1), references, channel_dim=-1).movedim(-1, 1), out)
    assert project(x.bfloat16(), references).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="3 channels, features have 5"):
        project(torch.randn(4, 5, 6, device=device), references)
    with pytest.raises(TypeError, match=r"must be a PreparedStyle, got Tensor; call prepare"):
        project(x, x)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["efdm", "adain"])
def test_references_with_masks(method: str) -> None:
    features, x = torch.randn(2, 3, 40) + torch.tensor([-9.0, 9.0]).view(2, 1, 1), torch.randn(3, 3, 5, 6) + 9
    for mask in (torch.rand(2, 40) < 0.5, torch.arange(40) < 25):
        out = project(x, prepare(features, style_mask=mask), method=method)
        close(out, project(x, prepare(features[1:, :, mask[1] if mask.ndim == 2 else mask]), method=method))


@pytest.mark.parametrize("strength", [-0.1, 1.5])
def test_wrong_strengths(strength: float) -> None:
    with pytest.raises(ValueError, match=f"strength must be between 0 .* got {strength}"):
        project(torch.randn(1, 2, 4), prepare(torch.randn(1, 2, 4)), strength)
