"""CUDA graphs of repeated calls: launching the kernels for a small picture takes longer than running them."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

MAX_GRAPHS = 4  # each keeps the memory of its intermediate results
MAX_PIXELS = 1 << 22  # of a batch; larger batches keep a GPU busy without a graph
_LOCK = threading.Lock()  # a process captures one graph at a time, and the next replay overwrites the output of a graph


class Captured:
    """``function(x)`` as a CUDA graph for the shape of ``x``. Tensors that the function reads must keep their addresses."""

    @torch.inference_mode(False)  # tensors of inference mode cannot be modified outside it
    @torch.no_grad()
    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
        self.function, self.x, self.graph = function, x.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.device(x.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(self.x)  # fills caches; libraries choose algorithms and allocate a workspace for the stream
            gc_enabled = gc.isenabled()
            gc.disable()  # freeing CUDA memory would break the capture
            try:
                # "thread_local": other threads may allocate memory meanwhile
                with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                    self.output = function(self.x)
            finally:
                if gc_enabled:
                    gc.enable()

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for ``x``, of any dtype and memory format, as a contiguous float32 tensor."""
        with _LOCK, torch.cuda.device(self.x.device):
            self.x.copy_(x)
            self.graph.replay()
            return self.output.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


class Graphs:
    """The `MAX_GRAPHS` most recently used graphs, each captured when its key occurs for the second time."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, Captured] = {}
        self._seen: deque[Hashable] = deque(maxlen=4 * MAX_GRAPHS)

    def __reduce__(self) -> tuple[type[Graphs], tuple[()]]:
        return Graphs, ()  # a copy starts without graphs

    def get(self, key: Hashable, capture: Callable[[], Captured]) -> Captured | None:
        """Return the graph of ``key``, or None if the key is new."""
        with _LOCK:
            if key not in self._graphs and key not in self._seen:
                self._seen.append(key)
                return None
            graph = self._graphs.pop(key, None) or capture()
            self._graphs[key] = graph
            if len(self._graphs) > MAX_GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            return graph
