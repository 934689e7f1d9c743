"""A training step as a captured CUDA graph: launching the kernels of a small network takes longer than running them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, get_args

import torch
from torch import Tensor

from efdm.ops.generator import default_generator

Speed = Literal["plain", "compile", "graph", "compile+graph"]
SPEEDS: tuple[Speed, ...] = get_args(Speed)
WARM_UP = 3  # steps before capturing, in which libraries choose algorithms and optimizers create their state


class Capture:
    """A step that is captured at its first call and replayed afterwards; ``mode="plain"`` just calls it.

    ``step`` maps tensors to named tensors and updates weights in place. Capturing runs it a few times and then restores
    everything it changed: the tensors in ``changed`` (weights, buffers, averages), the state of the optimizer and the
    generators. ``generator`` is the generator that the step draws from, unless it is torch's default.

    Replays run on the current stream, so several captures run concurrently if each is called on its own stream. During a
    capture the device continues with the work of other streams, but no other thread may launch work. Each capture has its
    own memory pool, because graphs that run concurrently must not share one.
    """

    def __init__(
        self,
        step: Callable[..., dict[str, Tensor]],
        optimizer: torch.optim.Optimizer,
        *,
        device: torch.device,
        changed: Sequence[Tensor],
        generator: torch.Generator | None = None,
        mode: Literal["plain", "graph"] = "graph",
    ) -> None:
        self.step, self.optimizer, self.device, self.changed = step, optimizer, device, changed
        self.generator, self.captures = generator, mode == "graph" and device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: dict[str, Tensor] = {}

    def __call__(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Return the output of the step. The next replay of a graph overwrites it."""
        if not self.captures:
            return self.step(*inputs)
        if self.graph is None:
            self.prepare(*inputs)
        with torch.cuda.device(self.device):
            for mine, given in zip(self.inputs, inputs, strict=True):
                mine.copy_(given, non_blocking=True)
            self.graph.replay()  # type: ignore[union-attr]
        return self.outputs

    def prepare(self, *inputs: Tensor) -> None:
        """Capture the graph, or run a step and undo it, so that compilation and the search for algorithms are over.

        Only the shapes and dtypes of ``inputs`` matter.
        """
        if not self.captures:
            with self._undone():
                self.step(*inputs)
        elif self.graph is None:
            with torch.cuda.device(self.device):  # a graph belongs to the current device, not to that of its tensors
                self._record(inputs)

    def _record(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = [i.clone() for i in inputs]
        with self._undone():
            self.graph = self._recorded()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        current = torch.cuda.current_stream()
        # The default stream cannot be captured. Another current stream is reused, because libraries allocate a workspace
        # for each stream.
        stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.step(*self.inputs)
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        try:
            with torch.cuda.stream(stream), _capturing(graph):
                self.outputs = self.step(*self.inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            hint = "use speed='plain' or 'compile'"
            raise RuntimeError(f"this step cannot be captured as a CUDA graph; {hint}. The error was: {error}") from error
        current.wait_stream(stream)  # capturing writes the seeds of the generators, and so does the first replay
        return graph

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Restore everything that steps in this block change, even if one of them fails."""
        generators = [default_generator(self.device), *([] if self.generator is None else [self.generator])]
        drawn = [g.get_state() for g in generators]
        before = [t.detach().clone() for t in self.changed]
        state = {key: value.clone() for key, value in self._optimizer_state().items()}

        def undo() -> None:
            with torch.no_grad():
                for tensor, value in zip(self.changed, before, strict=True):
                    tensor.copy_(value)
                # new state is zeroed: momentum, moments and counts of torch's optimizers start at zero
                for key, value in self._optimizer_state().items():
                    value.copy_(state[key]) if key in state else value.zero_()
            for g, at in zip(generators, drawn, strict=True):
                g.set_state(at)

        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # errors of a device that accepts no more work; the first error is raised below
                self.optimizer.zero_grad(set_to_none=True)
                undo()
            raise
        undo()

    def _optimizer_state(self) -> dict[tuple[int, str], Tensor]:
        states = self.optimizer.state.items()
        return {(id(p), name): v for p, state in states for name, v in state.items() if isinstance(v, Tensor)}

    def release(self) -> None:
        """Free the memory of the graph now: a step and its capture form a cycle, which Python collects late."""
        if self.graph is not None:
            self.graph.reset()
        self.graph, self.inputs, self.outputs, self.step = None, [], {}, _released


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture the current stream. Unlike `torch.cuda.graph`, do not wait for the work of other streams.

    Unused memory is released, which waits for the device, only if less than half of it is free.
    """
    free, total = torch.cuda.mem_get_info()
    if free < total / 2:
        gc.collect()
        torch.cuda.empty_cache()
    was = gc.isenabled()
    gc.disable()  # freeing CUDA memory would break a capture
    try:
        graph.capture_begin()
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # ending a failed capture fails as well, and would hide the first error
                graph.capture_end()
            raise
        graph.capture_end()
    finally:
        if was:
            gc.enable()


def _released(*_: Tensor) -> dict[str, Tensor]:
    raise RuntimeError("this step has been released")
