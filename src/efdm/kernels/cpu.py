"""CPU kernels, compiled by numba: a sorting network for short rows, a radix sort for long ones.

Floats become unsigned integer keys of the same order. Content carries its position in the low half of a 64-bit word. This
module contains the code that both sorts share; the sorts are in cpu_network.py and cpu_radix.py. The compiled code releases
the GIL, and cpu_threads.py distributes rows over threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from efdm.kernels import reference
from efdm.kernels.cpu_threads import parallel_rows
from efdm.kernels.floats import INFINITY_BITS
from efdm.kernels.reference import order_dtype

# By element size in bytes: longest rows for the network. Its time relative to the radix sort, for 1000 rows: 0.1 at length
# 64, 0.2 at 256, 0.6 at 512, 0.9 at 784, 1.1 at 1024; for 16-bit types, whose keys have fewer digits, 0.4 at 64, 0.7 at
# 128, 0.8 at 196, 1.0 at 256. Fewer than 16 rows do not fill the vectors of the network.
MAX_NETWORK_LENGTH = {4: 800, 2: 200}
MAX_ROW_LENGTH = 2**31 - 1  # a position shares a 64-bit word with a 32-bit key
MIN_BUCKETED_BYTES = 1 << 22  # rows that are sorted in buckets; for 3 rows of float32, in 0.9 of the time at this size
MAX_SCRATCH_BYTES = 1 << 23  # largest buffer of each dtype that a thread keeps between calls

_WORDS = {2: torch.int16, 4: torch.int32}


def unavailable_reason() -> str | None:
    """Return the missing dependency, or None if the kernels can run."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return "requires numba (pip install numba)"
    return None


def _words(t: Tensor) -> Any:
    """Return the bits of the tensor as an unsigned numpy array that shares its memory."""
    return t.view(_WORDS[t.element_size()]).numpy().view(f"u{t.element_size()}")


def _rows(array: Any) -> Any:
    """Return a view of shape ``(rows, n)``."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _run(kernel: Callable[..., None], arrays: Sequence[Any], *arguments: Any) -> None:
    """Call ``kernel(*arrays, *arguments, first, last)`` on ranges that cover the rows of the first array, in threads."""
    if arrays[0].size:
        parallel_rows(lambda a, b: kernel(*arrays, *arguments, a, b), *arrays[0].shape)


def _computed(kernel: Callable[..., None], content: Tensor, values: Tensor, *arguments: Any) -> Tensor:
    """Call a kernel that computes an output from two inputs of its shape, in float32."""
    out = torch.empty(content.shape, dtype=torch.float32)
    _run(kernel, [_rows(t.detach().float().numpy()) for t in (content, values, out)], *arguments)
    return out.to(values.dtype)


class Sorter:
    """The functions of `reference`, implemented by a module of compiled functions."""

    def __init__(self, module: str) -> None:
        self._module = module

    def _compiled(self, name: str) -> Callable[..., None]:
        # imported lazily: `import efdm` stays fast and works without numba
        return getattr(import_module(self._module), name)

    def _run_on_words(self, name: str, *tensors: Tensor) -> None:
        _run(self._compiled(name), [_rows(_words(t)) for t in tensors], INFINITY_BITS[tensors[0].dtype])

    def _output(self, name: str, *inputs: Tensor) -> Tensor:
        out = torch.empty_like(inputs[0])
        self._run_on_words(name, *inputs, out)
        return out

    def sort_match(self, x: Tensor, y: Tensor) -> Tensor:
        return self._output("sort_match", x, y)

    def match_sorted(self, x: Tensor, values: Tensor) -> Tensor:
        return self._output("match_sorted", x, values)

    def sort_rows(self, y: Tensor) -> Tensor:
        return self._output("sort_rows", y)

    def sort_rank(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int32, device=x.device)
        self._run_on_words("sort_rank", x, values, rank)
        return values, rank

    def take(self, values: Tensor, rank: Tensor) -> Tensor:
        return self._output("take", values, rank)

    def tolerant_match(self, x: Tensor, values: Tensor, tolerance: float) -> Tensor:
        return reference.tolerant_match(x, values, tolerance, self)

    def tolerant_values(self, content: Tensor, values: Tensor, tolerance: float) -> Tensor:
        from efdm.kernels import cpu_tolerant

        return _computed(cpu_tolerant.tolerant_values, content, values, tolerance)

    def quantile_values(self, content: Tensor, values: Tensor) -> Tensor:
        from efdm.kernels import cpu_quantiles

        return _computed(cpu_quantiles.quantile_values, content, values)

    def mix_partners(self, x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        return self._mixed(x, *self.sort_rank(x), _partners_and_weights(x, partner, weight))

    def mix_order(self, x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        samples = _partners_and_weights(x, partner, weight)
        values, rank = self.sort_rank(x)
        order = self.inverse(rank, order_dtype(x.shape[-1]))  # first: mixing reuses the memory of the ranks
        return self._mixed(x, values, rank, samples), order

    def inverse(self, rank: Tensor, dtype: torch.dtype = torch.int32) -> Tensor:
        order = torch.zeros(rank.shape, dtype=dtype)  # valid positions also for rows that are no permutation
        _run(self._compiled("inverse"), [_rows(t.numpy()) for t in (rank, order)])
        return order

    def _mixed(self, x: Tensor, values: Tensor, rank: Tensor, samples: tuple[Any, Any]) -> Tensor:
        out = rank.view(torch.float32)  # each rank is read once, then its memory is reused for the output
        # 16-bit floats are sorted as 16-bit keys and interpolated in float32
        content, style, ranks, mixed = (_rows(t.numpy()) for t in (x.detach().float(), values.float(), rank, out))
        _run(self._compiled("mix"), [content, style, ranks, *samples, mixed])
        return out.to(x.dtype)

    def mix_backward(self, grad: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        out = torch.empty(grad.shape, dtype=torch.float32)
        samples = _partners_and_weights(grad, partner, weight)
        given, positions, received = (_rows(t.numpy()) for t in (grad.detach().float(), order, out))
        _run(self._compiled("mix_backward"), [given, positions, *samples, received])
        return out.to(grad.dtype)

    def combine_order(self, x: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        return reference.combine_order(x, matrix, self)

    def combine_backward(self, grad: Tensor, order: Tensor, matrix: Tensor) -> Tensor:
        return reference.combine_backward(grad, order, matrix, self)


def _partners_and_weights(x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Any, Any]:
    """Return partners and weights as numpy arrays. Raise IndexError for partners outside the batch."""
    indices = partner.tolist()
    if indices and not 0 <= min(indices) <= max(indices) < x.shape[0]:
        raise IndexError(f"partner indices must be in [0, {x.shape[0]}), got {indices}")
    return partner.contiguous().numpy(), weight.detach().float().contiguous().numpy()


def _in_buckets(x: Tensor) -> bool:
    return x.shape[-1] * x.element_size() >= MIN_BUCKETED_BYTES and x.numel() > 0


class RadixSorter(Sorter):
    """A `Sorter` that sorts very long rows in buckets, and averages values while the content is in the cache."""

    def _output(self, name: str, *inputs: Tensor) -> Tensor:
        first = inputs[0]
        if name == "take" or not _in_buckets(first):
            return super()._output(name, *inputs)
        from efdm.kernels import cpu_buckets

        # memory of numpy, which is backed by huge pages: page faults took a third of the total time
        out = getattr(cpu_buckets, name)(*(_rows(_words(t)) for t in inputs), INFINITY_BITS[first.dtype])
        return torch.from_numpy(out.view(f"i{first.element_size()}")).view(first.dtype).view(first.shape)

    def tolerant_match(self, x: Tensor, values: Tensor, tolerance: float) -> Tensor:
        if _in_buckets(x):
            return self.match_sorted(x, self.tolerant_values(self.sort_rows(x), values, tolerance))
        from efdm.kernels import cpu_tolerant

        return _computed(cpu_tolerant.tolerant_match, x, values, _rows(_words(x)), tolerance, INFINITY_BITS[x.dtype])


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}


_scratch_of_thread = _Scratch()


def _scratch(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Return uninitialized memory that is valid until the thread's next call.

    Memory that is freed and allocated in every step is often returned to the system in between; the resulting page faults
    took a tenth of the total time.
    """
    count = shape.numel()
    if count * dtype.itemsize > MAX_SCRATCH_BYTES:
        return torch.empty(shape, dtype=dtype)
    buffer = _scratch_of_thread.buffers.get(dtype)
    if buffer is None or buffer.numel() < count:
        with torch.inference_mode(False):  # inference tensors cannot be used outside inference mode
            buffer = _scratch_of_thread.buffers[dtype] = torch.empty(count, dtype=dtype)
    return buffer[:count].view(shape)


class NetworkSorter(Sorter):
    """A `Sorter` that also mixes channels-last features, the usual output of convolutions, without copying."""

    def mix_partners(self, x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        if not _is_channels_last(x):
            return super().mix_partners(x.contiguous(), partner, weight)
        # rows are short, so positions fit 16 bits
        return self._mixed_channels_last(x, partner, weight, _scratch(x.mT.shape, torch.int16))

    def mix_order(self, x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        if not _is_channels_last(x):
            return super().mix_order(x.contiguous(), partner, weight)
        order = torch.empty(x.shape, dtype=torch.int16)
        return self._mixed_channels_last(x, partner, weight, order.mT), order

    def _mixed_channels_last(self, x: Tensor, partner: Tensor, weight: Tensor, order: Tensor) -> Tensor:
        samples = _partners_and_weights(x, partner, weight)
        last, infinity = x.detach().mT, INFINITY_BITS[x.dtype]
        out, values = torch.empty(last.shape, dtype=torch.float32), _scratch(last.shape, last.dtype)
        arrays = [_words(t) for t in (last, values, order)]
        sort, mix = self._compiled("sort_channels_last"), self._compiled("mix_channels_last")
        parallel_rows(lambda a, b: sort(*arrays, infinity, a, b), x.shape[0] * x.shape[1], x.shape[2])
        style, mixed = values.float().numpy(), out.numpy()
        parallel_rows(lambda a, b: mix(style, arrays[2], *samples, mixed, a, b), x.shape[0], x[0].numel())
        return out.to(x.dtype).mT

    def mix_backward(self, grad: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        if not _is_channels_last(grad):
            return super().mix_backward(grad.contiguous(), order.contiguous(), partner, weight)
        samples, out = _partners_and_weights(grad, partner, weight), torch.empty(grad.mT.shape, dtype=torch.float32)
        arrays = grad.detach().mT.float().numpy(), _words(order.contiguous()), *samples, out.numpy()
        backward = self._compiled("backward_channels_last")
        parallel_rows(lambda a, b: backward(*arrays, a, b), grad.shape[0], grad[0].numel())
        return out.to(grad.dtype).mT


def _is_channels_last(x: Tensor) -> bool:
    return not x.is_contiguous() and x.mT.is_contiguous() and x.numel() > 0


network = NetworkSorter("efdm.kernels.cpu_network")
radix = RadixSorter("efdm.kernels.cpu_radix")
