"""All CUDA launches pass the arguments that the kernels of sort_match.cu declare. Runs without a GPU."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from efdm.kernels import cuda, cuda_launch

KERNEL = re.compile(r"^(?!__device__).*?(\w+)\((const raw \*[^)]*)\) {$", re.MULTILINE)
SIGNATURES = {name: parameters.split(",") for name, parameters in KERNEL.findall(cuda_launch.SOURCE.read_text())}
POINTERS = {
    "int": torch.int32, "half_word": torch.int16, "float": torch.float32, "double": torch.float64, "long": torch.int64,
    "Totals": torch.float64,
}  # fmt: skip


class Recorder:
    """A module that checks launches instead of running them."""

    def __init__(self) -> None:
        self.launched: set[str] = set()

    def launch(self, name: str, blocks: int, threads: int, shared: int, *arguments: Any) -> None:
        self.launched.add(name)
        assert len(arguments) == len(SIGNATURES[name]), name
        for parameter, argument in zip(SIGNATURES[name], arguments, strict=True):
            kind = parameter.replace("const", "").split()[0]
            assert ("*" in parameter) == (argument is None or isinstance(argument, Tensor)), (name, parameter)
            if isinstance(argument, Tensor) and kind != "raw":
                assert argument.dtype == POINTERS[kind], (name, parameter)


def test_launch_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(cuda_launch, "_module", lambda *_: recorder)
    monkeypatch.setattr(cuda_launch, "_max_shared", lambda _: 1 << 17)
    cuda_launch._launcher.cache_clear()
    partner, weight = torch.arange(4), torch.rand(4)
    for functions, n in ((cuda.block, 50), (cuda.chunks, 40_000), (cuda.radix, 20_000)):
        x, rank = torch.randn(4, 6, n), torch.zeros(4, 6, n, dtype=torch.int32)
        functions.sort_match(x, x)
        functions.match_sorted(x, x)
        functions.sort_rows(x)
        functions.sort_rank(x)
        functions.take(x, rank)
        functions.tolerant_match(x, x, 0.1)
        functions.mix_partners(x, partner, weight)
    for grad in (torch.randn(4, 6, 50), torch.randn(4, 50, 6).mT):
        out, order = cuda.block.mix_order(grad, partner, weight)
        assert out.stride() == cuda.block.mix_backward(grad, order, partner, weight).stride() == grad.stride()
        for matrix in (torch.randn(4, 4), torch.randn(6, 4, 4)):
            out, order = cuda.block.combine_order(grad, matrix)
            assert out.stride() == cuda.block.combine_backward(grad, order, matrix).stride() == grad.stride()
    cuda_launch._launcher.cache_clear()
    assert recorder.launched == set(SIGNATURES)


def test_few_compilations() -> None:
    blocks = [cuda_launch._block(n) for n in range(1, 16_385)]
    assert all(threads * items >= n for n, (threads, items) in enumerate(blocks, 1))
    assert 2 * len({*blocks, cuda_launch._block(cuda_launch._TILE)}) <= 40  # for 16-bit and 32-bit floats
