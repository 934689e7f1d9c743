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
    """The state of running model calls, in an object because torch.compile can set tensors on objects only."""

    def __init__(self) -> None:
        self.labels: Tensor | None = None
        self.outer_labels: list[Tensor | None] = []  # labels to restore when a call ends, for each running call
        self.reached: list[list[str]] = []  # mixed stages reached so far, for each running eager call


class _CallsOfThread(threading.local, _Calls):
    pass


_compiled = _Calls()  # used by compiled code, which cannot read thread-local storage
_eager = _CallsOfThread()
_compiled_stages: set[str] = set()  # stages reached by any compiled call, because compiled code cannot record them per call
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
    if not torch.compiler.is_compiling():
        calls.reached.append([])
    if domains is not None:
        set_domains(domains)


def reach_stage(key: str) -> None:
    """Record that a model call has computed a mixed stage."""
    if torch.compiler.is_compiling():
        note_compiled_stage(key)
    elif _eager.reached:
        _eager.reached[-1].append(key)
    elif not in_backward():  # no eager call is running: the model is compiled but this stage is not
        _compiled_stages.add(key)


def note_compiled_stage(key: str) -> bool:
    """Record a stage while its code is traced, because checkpointed code must not have side effects when it runs."""
    _compiled_stages.add(key)
    return True


def is_compiled_stage(key: str) -> bool:
    return key in _compiled_stages


def evaluate_while_tracing() -> None:
    """Make torch.compile evaluate the functions above while tracing, and treat their results as constants."""
    for function in (note_compiled_stage, is_compiled_stage):
        torch.compiler.assume_constant_result(function)


def end_call() -> list[str]:
    """Leave a model call and return the keys of the mixed stages that it reached, or an empty list for a compiled call."""
    if torch.compiler.is_compiling():
        set_domains(_compiled.outer_labels.pop())
        return []
    if not _eager.outer_labels:  # compiled code started this call and failed
        _compiled.labels = _compiled.outer_labels.pop() if _compiled.outer_labels else None
        return []
    set_domains(_eager.outer_labels.pop())
    reached = _eager.reached.pop()
    if _eager.reached:
        _eager.reached[-1].extend(reached)
    return reached


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
