"""Compile CUDA source at run time with NVRTC and launch it through the driver.

Torch's CUDA packages depend on NVRTC, and libcuda belongs to the driver, so neither nvcc nor another Python package is
required. Compiled code is stored in the user's cache directory under a hash of the source and the options.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, cuda.h
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT, cuda.h
# the definition of a kernel, possibly by a macro such as MIX_KERNEL
_KERNEL = re.compile(r'^(?:\w*KERNEL(?:\(\w+\))?|extern "C" __global__ void) (\w+)\(.*?^}\n', re.MULTILINE | re.DOTALL)


def _candidates() -> Iterator[str]:
    """Yield the names under which NVRTC may be found: by the loader, in the nvidia packages, or in a CUDA toolkit."""
    name = f"libnvrtc.so.{(torch.version.cuda or '').split('.')[0]}"
    yield name  # before the others, because searching a toolkit takes a while
    nvidia = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (nvidia.submodule_search_locations or [])] if nvidia else []
    roots += [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    roots.append(Path("/usr/local/cuda"))
    for root in roots:
        yield from map(str, sorted(root.glob(f"**/{name}")) if root.is_dir() else ())


@cache
def _libraries() -> tuple[ctypes.PyDLL, ctypes.CDLL]:
    driver = ctypes.PyDLL("libcuda.so.1")  # PyDLL holds the GIL: launches are too short to release it
    for candidate in _candidates():
        try:
            return driver, ctypes.CDLL(candidate)
        except OSError:
            continue
    raise OSError(f"NVRTC of CUDA {torch.version.cuda} not found; pip install nvidia-cuda-nvrtc, or set CUDA_HOME")


@cache
def unavailable_reason() -> str | None:
    """Return the missing dependency, or None if kernels can be compiled and launched."""
    if not torch.cuda.is_available():
        return "requires a CUDA device"
    if torch.version.cuda is None:
        return "requires a CUDA build of torch"
    try:
        _compile('extern "C" __global__ void probe() {}', _options(torch.cuda.current_device()))
    except OSError as error:
        return str(error)
    except RuntimeError as error:  # the device may be newer than the compiler
        return " ".join(str(error).split())
    return None


def _options(device: int) -> list[str]:
    major, minor = torch.cuda.get_device_capability(device)
    return ["-std=c++17", f"--gpu-architecture=sm_{major}{minor}"]


def _check(code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _libraries()[0].cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what} failed with CUDA error {code}: {(text.value or b'unknown').decode()}")


def _compile(source: str, options: Sequence[str]) -> bytes:
    nvrtc = _libraries()[1]
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"efdm.cu", 0, None, None)
    flags = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), flags)
    size = ctypes.c_size_t()
    if failed:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC could not compile with {' '.join(options)}: {log.value.decode() or f'error {failed}'}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, binary)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def _binary(source: str, options: Sequence[str]) -> bytes:
    """Return compiled code, from the cache if possible. A cache that cannot be written is ignored."""
    from efdm.files import atomic_write, cache_folder  # imported lazily: `import efdm` does not need it

    major, minor = ctypes.c_int(), ctypes.c_int()
    _libraries()[1].nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    identity = "\0".join((source, *options, f"{major.value}.{minor.value}"))
    path = cache_folder() / f"{hashlib.sha256(identity.encode()).hexdigest()}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        binary = _compile(source, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:  # atomic: other processes may be reading
            file.write(binary)
    except OSError:
        pass
    return binary


def only_kernel(source: str, name: str) -> str:
    """Return the source without its other kernels, which compiles several times faster."""
    return _KERNEL.sub(lambda kernel: kernel[0] if kernel[1] == name else "", source)


class Module:
    """The kernels of a CUDA source for one device. Each is compiled when it is launched for the first time."""

    def __init__(self, source: str, definitions: dict[str, int], device: int, max_shared: int) -> None:
        self._source, self._device, self._max_shared = source, device, max_shared
        self._options = _options(device) + [f"-D{name}={value}" for name, value in definitions.items()]
        self._driver = _libraries()[0]
        self._launch = self._driver.cuLaunchKernel
        self._functions: dict[str, ctypes.c_void_p] = {}

    def _call(self, name: str, *arguments: object) -> None:
        driver = self._driver
        code = getattr(driver, name)(*arguments)
        if code == _INVALID_CONTEXT:  # this thread has not used the device yet: make torch's context current
            context = ctypes.c_void_p()
            _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device), "cuDevicePrimaryCtxRetain")
            _check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
            code = getattr(driver, name)(*arguments)
        _check(code, name)

    def _function(self, name: str) -> ctypes.c_void_p:
        function = self._functions.get(name)
        if function is None:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            with torch.cuda.device(self._device):
                self._call("cuModuleLoadData", ctypes.byref(module), _binary(only_kernel(self._source, name), self._options))
                self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
                self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, self._max_shared)
            self._functions[name] = function
        return function

    def launch(self, name: str, blocks: int, threads: int, shared: int, *arguments: torch.Tensor | int | None) -> None:
        """Launch on torch's current stream. Tensors are passed as pointers, integers as 32-bit integers, None as null."""
        # Every call passes through here, so it avoids allocations: each argument is a 64-bit word in an array that is reused
        # by the thread (a kernel reads 32-bit arguments from the low half), and the raw stream avoids a stream object.
        values, pointers = _slots(len(arguments))
        values[:] = [a if type(a) is int else a.data_ptr() if a is not None else 0 for a in arguments]  # type: ignore[union-attr]
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        launch = (self._function(name), blocks, 1, 1, threads, 1, 1, shared, ctypes.c_void_p(stream), pointers, None)
        if torch.cuda.current_device() == self._device and self._launch(*launch) == 0:
            return
        with torch.cuda.device(self._device):  # another device is current, or this thread has no context
            self._call("cuLaunchKernel", *launch)


class _Slots(threading.local):
    def __init__(self) -> None:
        self.by_count: dict[int, tuple[Any, Any]] = {}


_slots_of_thread = _Slots()


def _slots(count: int) -> tuple[Any, Any]:
    """Return an array of ``count`` argument words and the array of pointers to them."""
    cached = _slots_of_thread.by_count
    if count not in cached:
        values = (ctypes.c_uint64 * count)()
        base = ctypes.addressof(values)
        cached[count] = values, (ctypes.c_void_p * count)(*range(base, base + 8 * count, 8))
    return cached[count]
