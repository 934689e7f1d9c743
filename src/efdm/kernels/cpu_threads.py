"""Distribute rows over threads: torch's OpenMP workers where available, otherwise a thread pool.

After each operation, torch's OpenMP workers spin for milliseconds while waiting for the next one. A separate thread pool
would compete with them for the cores, because a convolution usually precedes a match: matching 80 rows of 16,384 values took
1.6 times as long. GNU OpenMP exports a C function that runs a callback on these workers; compilers call the same function.

Both variants work with several calling threads and after a fork, unlike numba's parallel backends. Each calling thread has
its own OpenMP workers. A forked child has none, and OpenMP does not detect this, so the child uses the thread pool. Torch's
own parallel operations hang in such a child unless it calls ``torch.set_num_threads(1)``, as data loader workers do.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

MIN_ELEMENTS = 1 << 15  # minimum per thread: with fewer, starting threads costs more than the work
SHARES_PER_THREAD = 4  # more shares than threads, so that a thread on a busy core takes fewer of them

Work = Callable[[int, int], None]  # first row, end of rows
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def parallel_rows(work: Work, rows: int, n: int) -> None:
    """Call ``work(first, end)`` on ranges that cover all rows of length ``n``, from several threads.

    Returns when all threads have finished, and raises the first exception of any thread.
    """
    threads = min(torch.get_num_threads(), rows, rows * n // MIN_ELEMENTS)
    if threads <= 1:
        return work(0, rows)
    shares = min(SHARES_PER_THREAD * threads, rows, rows * n // MIN_ELEMENTS)
    ranges = iter(list(pairwise(rows * i // shares for i in range(shares + 1))))
    errors: list[BaseException] = []

    def take_shares(_: object = None) -> None:
        try:
            for first, end in ranges:
                work(first, end)
        except BaseException as error:
            errors.append(error)

    if openmp := _openmp():
        # as many threads as torch uses, because OpenMP would otherwise end some workers and restart them for torch
        openmp(_CALLBACK(take_shares), None, torch.get_num_threads(), 0)
    else:
        _run_in_pool(take_shares, threads)
    if errors:
        raise errors[0]
    return None


def _run_in_pool(call: Callable[[], None], threads: int) -> None:
    global _pool
    if _pool is None or _pool[0] < threads:
        _pool = (threads, ThreadPoolExecutor(threads, thread_name_prefix="efdm"))
    futures = [_pool[1].submit(call) for _ in range(threads - 1)]
    call()
    for future in futures:
        future.result()


_pool: tuple[int, ThreadPoolExecutor] | None = None
_forked = False


@cache
def _gnu_openmp() -> Any:
    """Return ``GOMP_parallel(function, argument, threads, flags)`` of the OpenMP library that torch loaded, or None."""
    here = Path(torch.__file__).parent
    try:
        loaded = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
        # other packages may have loaded a second copy with its own workers
        (library,) = (p for p in loaded if here in p.parents or p.parent == here.with_name("torch.libs"))
        function = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, ValueError, AttributeError):
        return None
    function.argtypes, function.restype = [_CALLBACK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return function


def _openmp() -> Any:
    return None if _forked else _gnu_openmp()


def _after_fork() -> None:
    global _pool, _forked
    _pool, _forked = None, True  # no thread survives a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
