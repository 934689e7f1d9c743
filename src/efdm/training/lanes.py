"""Several runs side by side on one GPU, in one thread.

A run is a generator that yields after every step. Each lane has its own stream, so the device executes the steps of one
lane while the next launches its own. A small network leaves much of a GPU idle, so several lanes use it better. All lanes
run in one process and share data and compiled code.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Generic, TypeVar

import torch

from efdm.training.interrupt import stoppable

AHEAD = 96  # queued steps per lane: enough to keep the device busy while a run starts or ends, few enough to stop soon
PAUSE = 2e-4  # seconds to wait while the queues of all lanes are full

# Yielded before a step whose result is read: continue when the device has finished the steps of this lane. Otherwise the
# thread would wait for the whole queue, and the other lanes would run out of work.
WAIT = "wait"

Value = TypeVar("Value")
Work = Generator[Any, None, Value]  # yields after every step and returns a result; saves its state when closed


def finish(work: Work[Value]) -> Value:
    """Run the generator ``work`` to completion on the current stream and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def side_by_side(
    works: Iterable[Work[Value]], *, device: torch.device, lanes: int, finished: Callable[[Value], None]
) -> None:
    """Run all generators in order, ``lanes`` at a time, and call ``finished`` with the result of each.

    A lane whose queue is full is skipped, so fast lanes do not wait for slow ones. On a GPU, a generator is started only
    while the queues of the others are full, because starting a run takes a second. If a generator fails, or on Ctrl-C or
    SIGTERM, all others are closed.
    """
    waiting, places = iter(works), [_Lane[Value](device) for _ in range(lanes)]
    with stoppable(), ExitStack() as stack:
        for lane in places:
            stack.callback(lane.close)
        while True:
            for lane in places:
                if lane.work is None:
                    lane.load(next(waiting, None))
            running = [lane for lane in places if lane.work is not None]
            if not running:
                return
            ready = [lane for lane in running if lane.started and lane.has_room()]
            ready = ready or [lane for lane in running if not lane.started][:1]
            if not ready:
                time.sleep(PAUSE)
            for lane in ready:
                lane.advance(finished)


class _Lane(Generic[Value]):
    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.queue: deque[torch.cuda.Event] = deque()  # an event for each step that the device has not finished
        self.load(None)

    def load(self, work: Work[Value] | None) -> None:
        self.work, self.limit = work, AHEAD
        self.started = self.stream is None  # on a CPU all lanes take turns from the beginning

    def has_room(self) -> bool:
        while self.queue and self.queue[0].query():
            self.queue.popleft()
        return len(self.queue) < self.limit

    def advance(self, finished: Callable[[Value], None]) -> None:
        assert self.work is not None
        self.started = True
        with self._on_stream():
            try:
                self.limit = 1 if next(self.work) == WAIT else AHEAD
            except StopIteration as done:
                self.work = None
                if self.stream is not None:
                    self.stream.synchronize()  # the result may be used on any stream
                finished(done.value)
            if self.stream is not None:
                event = torch.cuda.Event()
                event.record()
                self.queue.append(event)

    def close(self) -> None:
        if self.work is not None:
            with self._on_stream():
                self.work.close()

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)
