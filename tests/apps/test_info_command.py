from functools import partial

import pytest
from commands import invoke

from efdm.version import VERSION

run = partial(invoke, "info")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "1,512,64,64 float32: cpu_radix"),
        (("--dtype", "float64"), "torch (torch.sort and scatter)"),
        (("--shape", "2,3,100000"), "cpu_radix"),
        (("--shape", "2x3x10x10"), "2x3x10x10 float32"),
    ],
)
def test_the_kernel_for_a_shape_and_dtype(arguments: tuple[str, ...], expected: str) -> None:
    result = run("--device", "cpu", *arguments)
    assert VERSION in result.output
    assert all(text in result.output for text in ("pillow", "av ", "small (found)", ".jpeg"))
    assert expected in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", "64"), "1,512,64,64 (--shape)"),
        (("--shape", "1,2,x"), "(--shape)"),
        (("--dtype", "int8"), "(--dtype)"),
        (("--device", "tpuu"), "tpuu"),
    ],
)
def test_invalid_arguments(arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*arguments, code=2).output


def test_a_forced_kernel() -> None:
    assert "forced by EFDM_KERNEL" in run("--device", "cpu", EFDM_KERNEL="torch").output
    assert "is for cuda, not cpu" in run("--device", "cpu", EFDM_KERNEL="cuda_block", code=2).output
