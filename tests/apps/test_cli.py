from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

import efdm
from efdm.apps.cli import app

runner = CliRunner()


def run(*arguments: str, **environment: str):
    return runner.invoke(app, list(arguments), env={"COLUMNS": "200", **environment})


def test_info_names_versions_and_the_kernel() -> None:
    result = run("info", "--device", "cpu")
    assert result.exit_code == 0
    assert efdm.__version__ in result.output
    assert "1,512,64,64 float32: cpu_radix" in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--dtype", "float64"), "torch (torch.sort and scatter)"),
        (("--shape", "2,3,100000"), "cpu_radix"),
        (("--shape", "2x3x10x10"), "2x3x10x10 float32"),
    ],
)
def test_info_for_a_shape_and_dtype(arguments: tuple[str, ...], expected: str) -> None:
    result = run("info", "--device", "cpu", *arguments)
    assert result.exit_code == 0
    assert expected in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", "64"), "write batch, channels and space like 1,512,64,64"),
        (("--shape", "1,2,x"), "is not a shape"),
        (("--dtype", "int8"), "is not one of float64"),
        (("--device", "tpuu"), "--device tpuu cannot be used here; try --device cpu"),
        pytest.param(
            ("--device", "mps"),
            "--device mps cannot be used here; try --device cpu",
            marks=pytest.mark.skipif(torch.backends.mps.is_available(), reason="it can"),
        ),
    ],
)
def test_bad_arguments_say_what_to_try(arguments: tuple[str, ...], message: str) -> None:
    result = run("info", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_forced_kernel_is_shown() -> None:
    assert "forced by EFDM_KERNEL" in run("info", "--device", "cpu", EFDM_KERNEL="torch").output
    result = run("info", "--device", "cpu", EFDM_KERNEL="cuda_block")
    assert result.exit_code == 2
    assert "is for cuda, not cpu" in result.output


def test_a_missing_package_is_told_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"dg": "efdm[dg]", "stylize": "efdm[style]"}
    for name, install in wanted.items():
        module = importlib.import_module("efdm.apps.cli")
        bare = typer.Typer()
        bare.callback()(lambda: None)
        monkeypatch.setattr(module, "app", bare)
        _, what, extra = module.COMMANDS[name]
        module._add(name, "efdm.apps.a_module_that_is_not_there", what, extra)
        result = runner.invoke(bare, [name, "--any", "thing"])
        assert result.exit_code == 2
        assert f"pip install '{install}'" in result.output


def test_every_command_names_an_extra_that_there_is() -> None:
    tomllib = pytest.importorskip("tomllib")
    from efdm.apps.cli import COMMANDS

    known = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for _, _, extra in COMMANDS.values()} <= set(known)


def test_help_and_no_arguments() -> None:
    assert run("--version").output.strip() == efdm.__version__
    assert "info" in run("--help").output
    assert "Usage" in run().output
