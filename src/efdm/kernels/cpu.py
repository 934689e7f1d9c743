"""Rows on the CPU, compiled by numba and shared among threads: short ones sorted by a network, long ones by their digits.

Floats become unsigned keys with the same order; the content carries its position in the low half of a 64-bit word. How the
words are sorted is in cpu_network.py and cpu_radix.py; everything around it is here, once.

The compiled code releases the GIL, and rows are shared among threads by cpu_threads.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from efdm.kernels.cpu_threads import parallel_rows
from efdm.kernels.floats import INFINITY_BITS

# By bytes of a number. Network / radix sort of 500 rows or more: 0.1 at 64 numbers, 0.4 at 256, 0.7 at 512, 1.0 at 800; with
# 16-bit numbers, which have fewer digits, 0.4 at 64, 0.7 at 100, 1.1 at 200. Fewer than 16 rows do not fill its vectors.
MAX_NETWORK_LENGTH = {4: 512, 2: 128}
MAX_ROW_LENGTH = 2**31 - 1  # a position shares a 64-bit word with a 32-bit key
KEPT = 1 << 23  # bytes of each type that a thread keeps from call to call

_WORDS = {2: torch.int16, 4: torch.int32}


def unavailable_reason() -> str | None:
    """Nothing if this row can run, else what is missing."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return "numba is not installed (pip install numba)"
    return None


def _words(t: Tensor) -> Any:
    """The tensor's bits as an unsigned numpy array that shares its memory."""
    return t.view(_WORDS[t.element_size()]).numpy().view(f"u{t.element_size()}")


class Sorter:
    """The functions of `reference`, on a compiled module that sorts in its own way."""

    def __init__(self, module: str) -> None:
        self._module = module

    def _compiled(self, name: str) -> Callable[..., None]:
        # imported here: `import efdm` stays fast, and works without numba
        return getattr(import_module(self._module), name)

    def _run(self, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        first = inputs[0]
        if first.numel() == 0:
            return
        kernel, infinity = self._compiled(name), INFINITY_BITS[first.dtype]
        arrays = [_words(t).reshape(-1, t.shape[-1]) for t in (*inputs, *outputs)]
        parallel_rows(lambda a, b: kernel(*arrays, infinity, a, b), *arrays[0].shape)

    def sort_match(self, x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        self._run("sort_match", (x, y), (out,))
        return out

    def match_sorted(self, x: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        self._run("match_sorted", (x, values), (out,))
        return out

    def sort_rows(self, y: Tensor) -> Tensor:
        out = torch.empty_like(y)
        self._run("sort_rows", (y,), (out,))
        return out

    def sort_rank(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int32, device=x.device)
        self._run("sort_rank", (x,), (values, rank))
        return values, rank

    def take(self, values: Tensor, rank: Tensor) -> Tensor:
        out = torch.empty_like(values)
        self._run("take", (values, rank), (out,))
        return out

    def mix_partners(self, x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        samples = _of_samples(x, partner, weight)
        values, rank = self.sort_rank(x)
        out = rank.view(torch.float32)  # a rank is read once, and then its place is free
        if x.numel():
            # 16-bit floats are sorted as they are, and blended as 32-bit ones
            tensors = (x.detach().float(), values.float(), rank, out)
            content, style, ranks, mixed = (t.view(-1, x.shape[-1]).numpy() for t in tensors)
            mix = self._compiled("mix")
            parallel_rows(lambda a, b: mix(content, style, ranks, *samples, mixed, a, b), *content.shape)
        return out.to(x.dtype)


def _of_samples(x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Any, Any]:
    """Partners and weights as arrays."""
    indices = partner.tolist()
    if indices and not 0 <= min(indices) <= max(indices) < x.shape[0]:
        raise IndexError(f"partners {indices} are not all samples of a batch of {x.shape[0]}")
    return partner.contiguous().numpy(), weight.detach().float().contiguous().numpy()


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}


_kept = _Kept()


def _scratch(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Memory until the thread's next call. What is freed and asked for again at every step is often given back to the system
    in between, and then comes page by page, which took a tenth of the time."""
    count = shape.numel()
    if count * dtype.itemsize > KEPT:
        return torch.empty(shape, dtype=dtype)
    buffer = _kept.buffers.get(dtype)
    if buffer is None or buffer.numel() < count:
        with torch.inference_mode(False):  # what is made in that mode could not be used outside of it
            buffer = _kept.buffers[dtype] = torch.empty(count, dtype=dtype)
    return buffer[:count].view(shape)


class LaneSorter(Sorter):
    """One that also mixes features with their channels last as they lie: behind convolutions they often do."""

    def mix_partners(self, x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        if x.is_contiguous() or not x.mT.is_contiguous() or not x.numel():
            return super().mix_partners(x.contiguous(), partner, weight)
        samples = _of_samples(x, partner, weight)
        last, infinity = x.detach().mT, INFINITY_BITS[x.dtype]
        out, values = torch.empty(last.shape, dtype=torch.float32), _scratch(last.shape, last.dtype)
        order = _scratch(last.shape, torch.int16)  # positions in short rows
        arrays = [_words(t) for t in (last, values, order)]
        sort, mix = self._compiled("sort_order_last"), self._compiled("mix_last")
        parallel_rows(lambda a, b: sort(*arrays, infinity, a, b), x.shape[0] * x.shape[1], x.shape[2])
        style, mixed = values.float().numpy(), out.numpy()
        parallel_rows(lambda a, b: mix(style, arrays[2], *samples, mixed, a, b), x.shape[0], x[0].numel())
        return out.to(x.dtype).mT


network = LaneSorter("efdm.kernels.cpu_network")
radix = Sorter("efdm.kernels.cpu_radix")
