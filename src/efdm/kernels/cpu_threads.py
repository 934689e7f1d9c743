"""Rows shared among threads: torch's own ones where they can be had, else threads of ours.

After an operation the workers of torch's OpenMP spin for milliseconds, waiting for the next one. Threads of ours must then
share the cores with them, and they always must: before every match there is a convolution. A match of 80 rows of 16,384 took
1.6 times as long for it. GNU's OpenMP has a plain C function that hands a piece of work to these workers, which is how
compilers use it.

Callers with many threads and forks must not break it, as they break parallel layers of numba: every calling thread has
workers of its own, and in the child of a fork, where those of OpenMP are gone and it does not know, threads are ours.
Torch's own operations hang in that child unless it is told to use one thread, as data loaders do; so they do after any
parallel operation.
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

SMALLEST_SHARE = 1 << 15  # elements a thread should get: below this, handing work over costs more than doing it
SHARES = 4  # for each thread: one whose core is busy takes fewer

Work = Callable[[int, int], None]  # rows from, to
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def parallel_rows(work: Work, rows: int, n: int) -> None:
    """Call ``work(first, last)`` on shares of the rows; this thread and others take one after the other.

    What ``work`` raises in any thread is raised here, when all have come to their end.
    """
    threads = min(torch.get_num_threads(), rows, rows * n // SMALLEST_SHARE)
    if threads <= 1:
        return work(0, rows)
    shares = min(SHARES * threads, rows, rows * n // SMALLEST_SHARE)
    todo = iter(list(pairwise(rows * i // shares for i in range(shares + 1))))
    errors: list[BaseException] = []

    def take_shares(_: object = None) -> None:
        try:
            for first, last in todo:
                work(first, last)
        except BaseException as error:
            errors.append(error)

    if team := _team():
        # all of torch's: with another number OpenMP would end some, and begin them anew for torch
        team(_ENTRY(take_shares), None, torch.get_num_threads(), 0)
    else:
        _ours(take_shares, threads)
    if errors:
        raise errors[0]
    return None


def _ours(call: Callable[[], None], threads: int) -> None:
    global _pool
    if _pool is None or _pool[0] < threads:
        _pool = (threads, ThreadPoolExecutor(threads, thread_name_prefix="efdm"))
    others = [_pool[1].submit(call) for _ in range(threads - 1)]
    call()
    for other in others:
        other.result()


_pool: tuple[int, ThreadPoolExecutor] | None = None
_forked = False


@cache
def _gnu_openmp() -> Any:
    """``GOMP_parallel(function, its argument, threads, flags)`` of the library that torch brought along, or None."""
    here = Path(torch.__file__).parent
    try:
        loaded = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
        # others may have brought one, too, with workers of its own
        (library,) = (p for p in loaded if here in p.parents or p.parent == here.with_name("torch.libs"))
        entry = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, ValueError, AttributeError):
        return None
    entry.argtypes, entry.restype = [_ENTRY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return entry


def _team() -> Any:
    return None if _forked else _gnu_openmp()


def _after_fork() -> None:
    global _pool, _forked
    _pool, _forked = None, True  # no thread survives it, and OpenMP does not notice


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
