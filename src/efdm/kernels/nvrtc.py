"""Compile CUDA source at run time and launch it, with nothing but what a CUDA build of torch brings along.

NVRTC (the run-time compiler) is a dependency of torch's CUDA packages and libcuda belongs to the driver, so neither nvcc
nor another Python package is needed. Compiled code is kept in the user's cache directory, named by a hash of everything
that went into it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, cuda.h
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT, cuda.h


def _candidates() -> list[str]:
    """Where NVRTC may be: known to the loader, in torch's own dependencies, or in a toolkit."""
    name = f"libnvrtc.so.{(torch.version.cuda or '').split('.')[0]}"
    found = [name]
    nvidia = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (nvidia.submodule_search_locations or [])] if nvidia else []
    roots += [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    roots.append(Path("/usr/local/cuda"))
    for root in roots:
        found += [str(p) for p in sorted(root.glob(f"**/{name}"))] if root.is_dir() else []
    return found


@cache
def _libraries() -> tuple[ctypes.PyDLL, ctypes.CDLL]:
    driver = ctypes.PyDLL("libcuda.so.1")  # launches are short: not worth giving up the GIL
    for candidate in _candidates():
        try:
            return driver, ctypes.CDLL(candidate)
        except OSError:
            continue
    raise OSError(f"NVRTC of CUDA {torch.version.cuda} was not found; pip install nvidia-cuda-nvrtc, or set CUDA_HOME")


@cache
def unavailable_reason() -> str | None:
    """Nothing if kernels can be compiled and run here, else what is missing."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if torch.version.cuda is None:
        return "torch is not a CUDA build"
    try:
        _compile('extern "C" __global__ void probe() {}', _options(torch.cuda.current_device()))
    except OSError as error:
        return str(error)
    except RuntimeError as error:  # a device newer than the compiler
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
    """Compile, or read what an earlier run compiled. A cache that cannot be written is not an error."""
    from efdm.files import atomic_write, cache_folder  # late: `import efdm` does without

    major, minor = ctypes.c_int(), ctypes.c_int()
    _libraries()[1].nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    everything = "\0".join((source, *options, f"{major.value}.{minor.value}"))
    path = cache_folder() / f"{hashlib.sha256(everything.encode()).hexdigest()}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        binary = _compile(source, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:  # other processes may be reading
            file.write(binary)
    except OSError:
        pass
    return binary


class Module:
    """Kernels compiled from one source for one device."""

    def __init__(self, source: str, definitions: dict[str, int], device: int, most_shared: int) -> None:
        options = _options(device) + [f"-D{name}={value}" for name, value in definitions.items()]
        binary = _binary(source, options)
        self._driver = _libraries()[0]
        self._launch = self._driver.cuLaunchKernel
        self._device, self._most_shared = device, most_shared
        self._module = ctypes.c_void_p()
        self._functions: dict[str, ctypes.c_void_p] = {}
        with torch.cuda.device(device):
            self._call("cuModuleLoadData", ctypes.byref(self._module), binary)

    def _call(self, name: str, *arguments: object) -> None:
        driver = self._driver
        code = getattr(driver, name)(*arguments)
        if code == _INVALID_CONTEXT:  # a thread that has not touched the device yet: give it torch's context
            context = ctypes.c_void_p()
            _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device), "cuDevicePrimaryCtxRetain")
            _check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
            code = getattr(driver, name)(*arguments)
        _check(code, name)

    def _function(self, name: str) -> ctypes.c_void_p:
        function = self._functions.get(name)
        if function is None:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, self._most_shared)
            self._functions[name] = function
        return function

    def launch(self, name: str, blocks: int, threads: int, shared: int, *arguments: torch.Tensor | int | None) -> None:
        """Launch on torch's current stream. Tensors go as pointers, integers as 32-bit integers, None as null."""
        # On the way of every call, and so written for speed: each argument is a machine word (a kernel that wants 32 bits
        # reads the low half) in an array that the thread keeps, and the stream comes without an object around it.
        values, pointers = _slots(len(arguments))
        values[:] = [a if type(a) is int else a.data_ptr() if a is not None else 0 for a in arguments]  # type: ignore[union-attr]
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        if torch.cuda.current_device() == self._device:
            code = self._launch(
                self._function(name), blocks, 1, 1, threads, 1, 1, shared, ctypes.c_void_p(stream), pointers, None
            )
            if code == 0:
                return
        with torch.cuda.device(self._device):  # another device is current, or this thread has no context yet
            rest = (blocks, 1, 1, threads, 1, 1, shared, ctypes.c_void_p(stream), pointers, None)
            self._call("cuLaunchKernel", self._function(name), *rest)


class _Slots(threading.local):
    def __init__(self) -> None:
        self.by_count: dict[int, tuple[Any, Any]] = {}


_slots_of_thread = _Slots()


def _slots(count: int) -> tuple[Any, Any]:
    """Room for so many arguments, and the pointers to them that a launch wants."""
    known = _slots_of_thread.by_count
    if count not in known:
        values = (ctypes.c_uint64 * count)()
        base = ctypes.addressof(values)
        known[count] = values, (ctypes.c_void_p * count)(*range(base, base + 8 * count, 8))
    return known[count]
