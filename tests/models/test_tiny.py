"""The tiny classifier."""

from __future__ import annotations

import torch

from efdm import EFDMix, mix_after
from efdm.models.tiny import WIDTHS, Tiny


def test_stages_halve_the_resolution() -> None:
    model, seen = Tiny(4), []
    for name in ("stage1", "stage2", "stage3"):
        model.get_submodule(name).register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1:]))
    mix_after(model, ("stage1", "stage2", "stage3"), EFDMix(p=1.0))
    model(torch.randn(2, 3, 31, 32))
    assert seen == [(WIDTHS[0], 16, 16), (WIDTHS[1], 8, 8), (WIDTHS[2], 4, 4)]
