"""Read many pictures in threads, and check and fingerprint data sets."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from efdm.data.folders import Skipped, Source
from efdm.data.images import PictureError, decode, on_white, resize, to_uint8
from efdm.data.memory import FEWER, Remedy, check_memory
from efdm.data.profiles import narrow
from efdm.progress import Progress, Report
from efdm.text import first_few, plural

T = TypeVar("T", bound=Any)  # an item with a ``name``


def digest(values: object) -> str:
    """Return the SHA-256 of JSON-serializable values as hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_rows(data: Any, numbers: Sequence[str]) -> None:
    """Raise unless the images of a set, and the fields ``numbers``, have one row for each of its names."""
    n = len(data.names)
    expected: Any = {"images": (torch.uint8, (n, 3, *data.images.shape[-2:])), **dict.fromkeys(numbers, (torch.int64, (n,)))}
    for what, (dtype, shape) in expected.items():
        values = getattr(data, what)
        if (values.dtype, tuple(values.shape)) != (dtype, shape):
            raise ValueError(f"{what} are {values.dtype} {tuple(values.shape)}, expected {dtype} {shape} for {n} names")


@contextmanager
def thread_pool(workers: int, threads: int = 1) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of ``workers`` threads in which torch's operations use ``threads`` threads each.

    With torch's default, every worker would start a thread per core.
    """
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, "efdm", torch.set_num_threads, (threads,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)  # the workers also changed the default of new threads


def read_all(
    items: Sequence[T], read: Callable[[T], Tensor], workers: int | None, progress: Report, skipped: Skipped
) -> Iterator[tuple[T, Tensor]]:
    """Yield each item with ``read(item)``, in order. If it raises `PictureError`, append (name, reason) to ``skipped``."""

    def attempt(item: T) -> Tensor | PictureError:
        try:
            return read(item)
        except PictureError as error:
            return error

    # if the caller stops, dropping the iterator of results cancels the items that have not started
    with thread_pool(workers or os.cpu_count() or 1) as pool:
        for done, (item, result) in enumerate(zip(items, pool.map(attempt, items), strict=True), 1):
            if isinstance(result, Tensor):
                yield item, result
            else:
                skipped.append((item.name, str(result)))
            progress(Progress("reading pictures", done, len(items)))
    if len(skipped) == len(items):
        raise PictureError(f"none of {len(items)} pictures could be read: {first_few([reason for _, reason in skipped])}")


def empty_images(count: int, size: tuple[int, int], *, remedy: Remedy = FEWER) -> Tensor:
    """Return an uninitialized tensor ``(count, 3, *size)``. Raise `SettingError` if it does not fit in memory."""
    height, width = size
    check_memory(3 * count * height * width, f"{plural(count, 'picture')} of {height} x {width} pixels", remedy=remedy)
    return torch.empty(count, 3, height, width, dtype=torch.uint8)


def read_images(
    items: Sequence[T], size: tuple[int, int], workers: int | None, progress: Report, *, remedy: Remedy = FEWER
) -> tuple[Tensor, list[T], Skipped]:
    """Return the pictures ``(n, 3, *size)``, their items, and (name, reason) of unreadable ones; see `empty_images`."""
    images, readable, skipped = empty_images(len(items), size, remedy=remedy), list[T](), Skipped()
    for item, image in read_all(items, functools.partial(read_resized, size=size), workers, progress, skipped):
        images[len(readable)] = image
        readable.append(item)
    return images[: len(readable)], readable, skipped


def read_resized(item: Any, size: tuple[int, int]) -> Tensor:
    """Read the picture of an item with a source, as uint8 ``(3, *size)``."""
    return resize(read_rgb(item.source, max(size)), size)


def read_rgb(source: Source, near: int | None) -> Tensor:
    """Read a picture as uint8 ``(3, h, w)`` over white. See `decode` for ``near``."""
    with source.open() as file:
        pixels = narrow(decode(file, str(source), near=near))
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    return image if len(image) == 3 else to_uint8(on_white(image[:3] / 255, image[3:] / 255))
