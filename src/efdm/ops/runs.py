"""Runs of equal values in sorted rows."""

from __future__ import annotations

import torch

from efdm.shapes import Places, Values, checked


@checked
def run_bounds(values: Values) -> tuple[Places, Places]:
    """For every sorted value, how many are smaller (where its run starts) and how many are not larger (where it ends)."""
    fresh = values[..., 1:] != values[..., :-1]
    run = torch.cat([torch.zeros_like(values[..., :1], dtype=torch.long), fresh.long().cumsum(-1)], -1)
    # counted with sums and scatters, not searchsorted: they exist in ONNX
    length = torch.zeros_like(run).scatter_add(-1, run, torch.ones_like(run))
    end = length.cumsum(-1).gather(-1, run)
    return end - length.gather(-1, run), end
