"""State of the model call in progress: its domain labels, and which mixed stages it has reached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from efdm.ops.generator import default_generator

_REMEMBERED = 256  # draws whose labels are stored for checkpointed forwards, which backward repeats


class _Calls:
    """Labels and call stacks are attributes of an object because torch.compile can set tensors on objects only."""

    def __init__(self) -> None:
        self.labels: Tensor | None = None
        self.outer_labels: list[Tensor | None] = []  # of each running call: the labels to restore when it ends
        self.reached: list[list[str]] = []  # of each running call: the mixed stages reached so far


class _CallsOfThread(threading.local, _Calls):
    pass


class _Flag:
    value = False


_compiled = _Calls()  # used by compiled code, which cannot read thread-local storage
_eager = _CallsOfThread()
_reached_any = _Flag()  # connects compiled stages with an eager model, and eager stages with a compiled one
_by_state: OrderedDict[bytes, Tensor] = OrderedDict()


def _calls() -> _Calls:
    return _compiled if torch.compiler.is_compiling() else _eager


def set_domains(domains: Tensor | None) -> None:
    _compiled.labels = domains
    if not torch.compiler.is_compiling():
        _eager.labels = domains


def current_domains() -> Tensor | None:
    return _calls().labels


def begin_call(domains: Tensor | None) -> None:
    """Enter a model call. Without labels of its own, the call uses those of the enclosing `domains_of_batch` block."""
    calls = _calls()
    calls.outer_labels.append(calls.labels)
    calls.reached.append([])
    _reached_any.value = False
    if domains is not None:
        set_domains(domains)


def reach_stage(name: str) -> None:
    """Record that the running model call has computed a mixed stage."""
    _reached_any.value = True
    calls = _calls()
    if calls.reached:  # empty while backward repeats a checkpointed forward
        calls.reached[-1].append(name)


def end_call() -> list[str] | None:
    """Leave a model call and return the stages it reached, or None if some code was compiled and the list is incomplete."""
    calls = _calls()
    if not torch.compiler.is_compiling() and not _eager.outer_labels and _compiled.outer_labels:
        calls = _compiled  # compiled code began this call and failed
        _compiled.labels = calls.outer_labels.pop()
    else:
        set_domains(calls.outer_labels.pop())
    reached = calls.reached.pop()
    if calls.reached:
        calls.reached[-1].extend(reached)
    return None if not reached and _reached_any.value else reached


@contextmanager
def domains_of_batch(domains: Tensor) -> Iterator[None]:
    """Pass domain labels to every mixing layer called in the block, for models that cannot be called with ``domains=``.

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
    """Return True while autograd runs, that is, while a checkpointed forward is repeated."""
    return torch._C._current_graph_task_id() != -1


def _state(device: torch.device) -> bytes:
    """Return the state of torch's default generator, which checkpointing restores before it repeats a forward."""
    generator = default_generator(device)
    return f"{generator.device} ".encode() + bytes(generator.get_state().numpy())


def _as_labels(domains: object) -> Tensor:
    try:
        return torch.as_tensor(domains)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"domains must be an integer tensor with one label per sample, got a {type(domains).__name__} that cannot be "
            "converted; turn names into labels with torch.tensor([names.index(domain) for domain in domains])"
        ) from error


def labels_for_draw(domains: Tensor | None, device: torch.device) -> Tensor | None:
    """Return the labels for the next draw: in a repeated forward, the labels of the original forward."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return domains  # the generator's state cannot be read during graph capture
    state = _state(device)
    if in_backward() and state in _by_state:
        return _by_state[state]
    if domains is not None:
        _by_state[state] = _as_labels(domains).clone()  # data loaders may reuse the buffer
        while len(_by_state) > _REMEMBERED:
            _by_state.popitem(last=False)
    return domains
