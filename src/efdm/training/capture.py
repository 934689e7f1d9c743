"""A training step as a recorded CUDA graph: small networks spend more time being launched than being run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from efdm.ops.generator import default_generator

SPEEDS = ("plain", "compile", "graph", "compile+graph")
WARM_UP = 3  # steps before recording: libraries choose their algorithms, optimizers make their state

Step = Callable[..., dict[str, Tensor]]


class Capture:
    """A step that is recorded at its first call and replayed from then on; ``how="plain"`` only calls it.

    ``step`` takes tensors, changes weights and gives tensors by name. Recording runs it a few times, and leaves everything
    as it was before: ``changed`` (weights, buffers, averages: what else a step writes to), the state of the optimizer, and
    the generators. ``generator`` is the one that the step draws from, if not torch's own.

    Replays, as everything else, go to the current stream: several captures run side by side when each is called with a
    stream of its own. Recording needs the device for itself: `torch.cuda.graph` waits for all work before it begins, and no
    other thread may issue any meanwhile. A capture keeps the memory of its graph for itself, since a pool may only be shared
    by graphs that never run at the same time.
    """

    def __init__(
        self,
        step: Step,
        optimizer: torch.optim.Optimizer,
        *,
        device: torch.device,
        changed: Sequence[Tensor],
        generator: torch.Generator | None = None,
        how: str = "graph",
    ) -> None:
        self.step, self.optimizer, self.device, self.changed = step, optimizer, device, changed
        self.generator, self.how = generator, how
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: dict[str, Tensor] = {}

    def __call__(self, *inputs: Tensor) -> dict[str, Tensor]:
        """What the step gives; of a replayed graph it is overwritten by the next one."""
        if self.how == "plain" or self.device.type != "cuda":
            return self.step(*inputs)
        if self.graph is None:
            self.prepare(*inputs)
        with torch.cuda.device(self.device):
            for mine, given in zip(self.inputs, inputs, strict=True):
                mine.copy_(given, non_blocking=True)
            self.graph.replay()  # type: ignore[union-attr]
        return self.outputs

    def prepare(self, *inputs: Tensor) -> None:
        """Make the first step like all others: record the graph, or without one do a step, in which code is compiled and
        algorithms are looked for. Only shapes and types of ``inputs`` matter, as all is undone."""
        if self.how == "plain" or self.device.type != "cuda":
            with self._undone():
                self.step(*inputs)
        elif self.graph is None:
            with torch.cuda.device(self.device):  # graphs belong to the current device, whatever that of their tensors is
                self._record(inputs)

    def _record(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = [i.clone() for i in inputs]
        with self._undone():
            self.graph = self._recorded()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        current = torch.cuda.current_stream()
        # torch's default stream cannot be captured; a stream of the caller's own is better than another one, as libraries
        # keep a workspace for each stream
        stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.step(*self.inputs)
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        # A step that fails leaves a broken capture, whose end fails, too: that error hides the one before it, and torch
        # stays on the stream of the capture. Here the first one counts, and the stream is the caller's again.
        first: list[BaseException] = []
        try:
            # with a stream: torch's own one stays on the device of the first capture
            with torch.cuda.stream(current), _no_collection(), torch.cuda.graph(graph, stream=stream):
                try:
                    self.outputs = self.step(*self.inputs)
                except BaseException as error:
                    first.append(error)
                    raise
        except RuntimeError as error:
            cause = first[0] if first else error
            if not isinstance(cause, RuntimeError) or isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            hint = "speed='plain' and 'compile' run it as it is"
            raise RuntimeError(f"this step cannot be recorded as a CUDA graph; {hint}. CUDA said: {cause}") from cause
        return graph

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """What steps in the block change is afterwards as it was before, also when one of them fails."""
        generators = [default_generator(self.device)]
        generators += [] if self.generator is None else [self.generator]
        drawn = [g.get_state() for g in generators]
        before, state = [t.detach().clone() for t in self.changed], self._optimizer_state(copied=True)

        def undo() -> None:
            with torch.no_grad():
                for tensor, value in zip(self.changed, before, strict=True):
                    tensor.copy_(value)
                # what was not there before begins at zero: so do momentum, moments and counts of torch's optimizers
                for key, value in self._optimizer_state().items():
                    value.copy_(state[key]) if key in state else value.zero_()
            for g, at in zip(generators, drawn, strict=True):
                g.set_state(at)

        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # of a device that takes no more work; what made it so is told
                self.optimizer.zero_grad(set_to_none=True)  # the step did not come to where it does so itself
                undo()
            raise
        undo()

    def _optimizer_state(self, *, copied: bool = False) -> dict[tuple[int, str], Tensor]:
        found = {}
        for parameter, state in self.optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    found[id(parameter), name] = value.clone() if copied else value
        return found

    def release(self) -> None:
        """Give the memory of the graph back. Not left to Python: a step and its capture know each other, and what does so
        is found late, or never when all that is short is the memory of the device."""
        if self.graph is not None:
            self.graph.reset()
        self.graph, self.inputs, self.outputs, self.step = None, [], {}, _released


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python collects its garbage before the block and not in it: to free what belongs to CUDA would break a capture."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _released(*_: Tensor) -> dict[str, Tensor]:
    raise RuntimeError("this step was released")
