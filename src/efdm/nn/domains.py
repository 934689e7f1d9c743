"""The domain labels of the batch that is being computed, for layers deep inside a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class _Batch:
    """`current` while a block or a call is running; `last` afterwards, for activations recomputed in backward."""

    def __init__(self) -> None:
        self.current: Tensor | None = None
        self.last: Tensor | None = None


_batch = _Batch()  # an object and not a class: compilers can set tensors on objects only


def in_backward() -> bool:
    """Whether autograd is running, that is, whether a checkpointed forward is being repeated."""
    return torch._C._current_graph_task_id() != -1


def set_domains(domains: Tensor | None) -> Tensor | None:
    """Set the labels; returns the ones before."""
    before = _batch.current
    _batch.current = domains
    if domains is not None:
        _batch.last = domains
    return before


def current_domains() -> Tensor | None:
    if _batch.current is None and not torch.compiler.is_compiling() and in_backward():
        return _batch.last
    return _batch.current


@contextmanager
def domains_of_batch(domains: Tensor) -> Iterator[None]:
    """Labels for every mixing layer called in the block; for models that do not take ``domains=`` themselves.

    >>> import torch
    >>> from efdm import EFDMix, domains_of_batch
    >>> mix = EFDMix(p=1.0, mix="crossdomain")
    >>> with domains_of_batch(torch.tensor([0, 0, 1, 1])):
    ...     out = mix(torch.rand(4, 8, 7, 7))
    """
    before = set_domains(domains)
    try:
        yield
    finally:
        set_domains(before)
