"""The domain labels of the batch that is being computed, for layers deep inside a network."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from efdm.ops.generator import default_generator

_REMEMBERED = 256  # draws whose labels are kept for activations that are computed again in backward


class _Labels:
    """Objects and not classes hold the labels: compilers can set tensors on objects only."""

    def __init__(self) -> None:
        self.current: Tensor | None = None
        self.before: list[Tensor | None] = []  # what was current when each call that is running began


class _LabelsOfThread(threading.local, _Labels):
    pass


_compiled = _Labels()  # what compiled code reads: it cannot follow thread-local storage
_eager = _LabelsOfThread()
_by_state: OrderedDict[bytes, Tensor] = OrderedDict()


def _labels() -> _Labels:
    return _compiled if torch.compiler.is_compiling() else _eager


def set_domains(domains: Tensor | None) -> None:
    _compiled.current = domains
    if not torch.compiler.is_compiling():
        _eager.current = domains


def current_domains() -> Tensor | None:
    return _labels().current


def call_begins(domains: Tensor | None) -> None:
    """A model is called, with labels or without: without, those of the surrounding block stay."""
    _labels().before.append(current_domains())
    if domains is not None:
        set_domains(domains)


def call_ends() -> None:
    if not torch.compiler.is_compiling() and not _eager.before and _compiled.before:
        _compiled.current = _compiled.before.pop()  # a call that began compiled and failed ends uncompiled
    else:
        set_domains(_labels().before.pop())


@contextmanager
def domains_of_batch(domains: Tensor) -> Iterator[None]:
    """Labels for every mixing layer called in the block; for models that do not take ``domains=`` themselves.

    >>> import torch
    >>> from efdm import EFDMix, domains_of_batch
    >>> mix = EFDMix(p=1.0, pairing="crossdomain")
    >>> with domains_of_batch(torch.tensor([0, 0, 1, 1])):
    ...     out = mix(torch.rand(4, 8, 7, 7))
    """
    before = current_domains()
    set_domains(domains)
    try:
        yield
    finally:
        set_domains(before)


def in_backward() -> bool:
    """Whether autograd is running, that is, whether a checkpointed forward is being repeated."""
    return torch._C._current_graph_task_id() != -1


def _state(device: torch.device) -> bytes:
    """The state of torch's own generator, which checkpointing rewinds before it repeats a forward."""
    generator = default_generator(device)
    return f"{generator.device} ".encode() + bytes(generator.get_state().numpy())


def _as_labels(domains: object) -> Tensor:
    try:
        return torch.as_tensor(domains)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"domains is a {type(domains).__name__} of other things than numbers; labels are integers, a tensor (b,), one "
            "for each sample: make them of names by torch.tensor([names.index(domain) for domain in domains]), names being "
            "a list of all your domains"
        ) from error


def labels_for_draw(domains: Tensor | None, device: torch.device) -> Tensor | None:
    """The labels to use for a draw: those given, or in a repeated forward those the same draw had the first time."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return domains  # a graph being captured keeps its generator to itself
    state = _state(device)
    if in_backward() and state in _by_state:
        return _by_state[state]
    if domains is not None:
        _by_state[state] = _as_labels(domains).clone()  # a copy: loaders fill their buffers again
        while len(_by_state) > _REMEMBERED:
            _by_state.popitem(last=False)
    return domains
