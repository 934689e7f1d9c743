"""The choice of a kernel, its override and its explanation."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from efdm import kernels
from efdm.kernels.dispatch import ENV_VARIABLE, KERNELS, choose_kernel, explain

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("dtype", "n", "name"),
    [
        (torch.float32, 800, "cpu_network"),
        (torch.float32, 801, "cpu_radix"),
        (torch.float16, 200, "cpu_network"),
        (torch.float16, 201, "cpu_radix"),
        (torch.bfloat16, 201, "cpu_radix"),
        (torch.float64, 4096, "torch"),
    ],
)
def test_kernel_by_dtype_and_length(dtype: torch.dtype, n: int, name: str) -> None:
    assert choose_kernel(CPU, dtype, n).name == name


def test_last_kernel_supports_every_device() -> None:
    assert KERNELS[-1].name == "torch"
    assert KERNELS[-1].device == "any"


def test_forced_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "torch")
    assert choose_kernel(CPU, torch.float32, 4096).name == "torch"
    assert ENV_VARIABLE in explain(CPU, torch.float32, 4096)


def test_forced_kernel_that_does_not_support_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "cuda_block")
    with pytest.raises(ValueError, match="cuda_block is for cuda, not cpu"):
        kernels.sort_match(torch.rand(2, 3), torch.rand(2, 3))


def test_unknown_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "fastest")
    with pytest.raises(ValueError, match="cuda_block, cuda_chunks, cuda_radix, cpu_network, cpu_radix, torch"):
        choose_kernel(CPU, torch.float32, 8)


def test_explanation_lists_skipped_kernels() -> None:
    sentence = explain("cpu", torch.float64, 100)
    assert sentence.startswith("torch ")
    assert "cpu_radix does not support torch.float64" in sentence


@pytest.mark.slow
def test_without_numba() -> None:
    script = """
        import sys
        sys.modules["numba"] = None  # makes `import numba` fail
        import torch, efdm
        from efdm.kernels import explain
        print(explain("cpu", torch.float32, 64))
        x, y = torch.rand(2, 3, 8), torch.rand(2, 3, 8)
        assert torch.equal(efdm.efdm(x, y).sort(-1).values, y.sort(-1).values)
        assert torch.equal(efdm.histogram_match(x, y), efdm.efdm(x, y))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torch ")
    assert "requires numba" in done.stdout
