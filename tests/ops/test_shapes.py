"""The annotated shapes hold: operations run with run-time shape checks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import torch
    from efdm import Partners, efdm, efdmix, histogram_match, kernels, prepare, tied_share

    for dtype in (torch.float64, torch.float16):
        x, y = torch.randn(2, 3, 4, 5).to(dtype).requires_grad_(), torch.randn(2, 3, 7).to(dtype).requires_grad_()
        mask = torch.rand(2, 4, 5) < 0.5
        for style in (x.flip(0), y, y[:1], prepare(y), prepare(y, style_mask=torch.rand(2, 7) < 0.5), Partners([1, 0])):
            for ties in ("stable", "random", "neighbor"):
                efdm(x, style, ties=ties).sum().backward()
            efdm(x, style, sizes="nearest", content_mask=mask)
            efdmix(x, style, torch.rand(2))
            histogram_match(x, style, content_mask=mask)
            histogram_match(x, style)
        efdm(x, y, style_grad="flow").sum().backward()
        efdmix(x, Partners([1, 0]), 0.5, style_grad="flow").sum().backward()
        tied_share(x)
    try:
        kernels.sort_match(torch.rand(2, 3), torch.rand(2, 4))
    except Exception as error:
        assert "jaxtyping" in type(error).__module__ and "sort_match" in str(error), error
    else:
        raise AssertionError("wrong shapes were not detected")
"""


@pytest.mark.slow
def test_annotated_shapes_hold() -> None:
    pytest.importorskip("jaxtyping")
    pytest.importorskip("beartype")
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    environment = {**os.environ, "EFDM_CHECK_SHAPES": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
