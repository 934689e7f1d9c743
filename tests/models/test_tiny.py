"""The tiny classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from efdm import EFDMix, mix_after
from efdm.models.tiny import WIDTHS, Tiny


def test_stages_halve_the_resolution() -> None:
    model, seen = Tiny(4), []
    for name in ("stage1", "stage2", "stage3"):
        model.get_submodule(name).register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1:]))
    mix_after(model, ("stage1", "stage2", "stage3"), EFDMix(p=1.0))
    model(torch.randn(2, 3, 31, 32))
    assert seen == [(WIDTHS[0], 16, 16), (WIDTHS[1], 8, 8), (WIDTHS[2], 4, 4)]


def test_learns_where_two_lines_cross() -> None:
    labels = torch.arange(64) % 4
    images = 0.3 * torch.randn(64, 3, 32, 32)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 8 * (label + 1) - 1, :] += 3
        image[:, :, 8 * (4 - label) - 1] -= 3
    model = Tiny(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(30):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1
    assert losses[-1] < 0.1
