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
    ("dtype", "name"),
    [(torch.float32, "cpu_radix"), (torch.float16, "cpu_radix"), (torch.bfloat16, "cpu_radix"), (torch.float64, "torch")],
)
def test_cpu_rows(dtype: torch.dtype, name: str) -> None:
    assert choose_kernel(CPU, dtype, 4096).name == name


@pytest.mark.parametrize(("dtype", "longest"), [(torch.float32, 512), (torch.float16, 128), (torch.bfloat16, 128)])
def test_short_rows_go_through_a_network(dtype: torch.dtype, longest: int) -> None:
    assert choose_kernel(CPU, dtype, longest).name == "cpu_network"
    assert choose_kernel(CPU, dtype, longest + 1).name == "cpu_radix"


def test_the_last_row_takes_everything() -> None:
    assert KERNELS[-1].name == "torch"
    assert KERNELS[-1].device == "any"


def test_a_row_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "torch")
    assert choose_kernel(CPU, torch.float32, 4096).name == "torch"
    assert ENV_VARIABLE in explain(CPU, torch.float32, 4096)


def test_a_forced_row_that_cannot_serve_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "cuda_block")
    with pytest.raises(ValueError, match="cuda_block is for cuda, not cpu"):
        kernels.sort_match(torch.rand(2, 3), torch.rand(2, 3))


def test_an_unknown_row_lists_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "fastest")
    with pytest.raises(ValueError, match="cuda_block, cuda_chunks, cpu_network, cpu_radix, torch"):
        choose_kernel(CPU, torch.float32, 8)


def test_explains_what_was_passed_over() -> None:
    sentence = explain("cpu", torch.float64, 100)
    assert sentence.startswith("torch ")
    assert "cpu_radix does not take torch.float64" in sentence


@pytest.mark.slow
def test_works_without_numba() -> None:
    script = """
        import sys
        sys.modules["numba"] = None  # an import of numba fails from now on
        import torch, efdm
        from efdm.kernels import explain
        print(explain("cpu", torch.float32, 64))
        x, y = torch.rand(2, 3, 8), torch.rand(2, 3, 8)
        assert torch.equal(efdm.efdm(x, y).sort(-1).values, y.sort(-1).values)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torch ")
    assert "numba is not installed" in done.stdout
