"""Several long pieces of work side by side on one GPU, in one thread.

A piece of work is a generator that pauses after every step. Each lane has a stream of its own, on which the device runs what
the work issues while other lanes issue theirs. Small networks leave most of a GPU idle, which others can use this way; what
they have in common (data, compiled code) is there once, as it is all one process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Generic, TypeVar

import torch

from efdm.training.interrupt import stoppable

# Steps of a lane that may wait for the device: enough to keep it busy while another lane is set up, few enough to be stopped
# within a second.
AHEAD = 32
PAUSE = 2e-4  # seconds, when all lanes have that many

Value = TypeVar("Value")
Work = Generator[None, None, Value]  # pauses after every step, returns what it made; closed in a pause, it saves itself


def finish(work: Work[Value]) -> Value:
    """Do all of it at once, on the current stream."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def side_by_side(
    works: Iterable[Work[Value]], *, device: torch.device, lanes: int, finished: Callable[[Value], None]
) -> None:
    """Do all works, ``lanes`` of them at a time, in the order in which they come; ``finished`` is told what each made.

    A lane with enough steps waiting for the device is passed over, so that fast ones do not wait for slow ones. When one
    fails, or Ctrl-C or SIGTERM comes, all others are closed in their pause.
    """
    waiting, places = iter(works), [_Lane[Value](device) for _ in range(lanes)]
    with stoppable(), ExitStack() as stack:
        for lane in places:
            stack.callback(lane.close)
        while True:
            for lane in places:
                if lane.work is None:
                    lane.work = next(waiting, None)
            running = [lane for lane in places if lane.work is not None]
            if not running:
                return
            ready = [lane for lane in running if lane.has_room()]
            if not ready:
                time.sleep(PAUSE)  # not for a certain step: nobody knows which one ends first
            for lane in ready:
                lane.advance(finished)


class _Lane(Generic[Value]):
    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.issued: deque[torch.cuda.Event] = deque()  # one for each step that the device has not finished
        self.work: Work[Value] | None = None

    def has_room(self) -> bool:
        while self.issued and self.issued[0].query():
            self.issued.popleft()
        return len(self.issued) < AHEAD

    def advance(self, finished: Callable[[Value], None]) -> None:
        assert self.work is not None
        with self._on_stream():
            try:
                next(self.work)
            except StopIteration as done:
                self.work = None
                if self.stream is not None:
                    self.stream.synchronize()  # what was made may be used on any stream
                finished(done.value)
            if self.stream is not None:
                event = torch.cuda.Event()
                event.record()
                self.issued.append(event)

    def close(self) -> None:
        if self.work is not None:
            with self._on_stream():
                self.work.close()

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)
