from typing import Annotated

import pytest
import torch
import typer
from typer.testing import CliRunner

from efdm.apps.cli.errors import report_errors
from efdm.errors import DamagedFileError, DivergedError, MissingExtraError, OutOfMemoryError, RunFolderError, SettingError
from efdm.models.weights import MissingWeights


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SettingError("lr must be >= 0, got -1", "lr"), "lr must be >= 0, got -1 (--lr)"),
        (SettingError("they clash", ("style_weight", "momentum")), "they clash (--style-weight, --set momentum)"),
        (SettingError("no settings"), "no settings"),
        (SettingError("no such recipe", "recipe"), "no such recipe\n"),
        (DivergedError("the loss is nan", 3), "the loss is nan (--lr)"),
        (RunFolderError("run/ is unfinished", "run", "started"), "run/ is unfinished (--resume, --out)"),
        (RunFolderError("nothing in run/", "run", "not started"), "nothing in run/ (--resume)"),
        (RunFolderError("run/ is finished", "run", "finished"), "run/ is finished (--out)"),
        (DamagedFileError("a[b].pt", "truncated", "delete it"), "a[b].pt: truncated; delete it"),
        (MissingExtraError("av", "video"), str(MissingExtraError("av", "video"))),
        (torch.OutOfMemoryError("tried to allocate"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
        (MemoryError(), "not enough memory"),
        (OutOfMemoryError("a.png"), "not enough memory for a.png; make it smaller"),
        (PermissionError(13, "Permission denied", "a.csv"), "a.csv is not accessible"),
        (FileExistsError(17, "File exists", "runs"), "runs is, or is below, a file"),
        (OSError(98, "Address already in use"), "[Errno 98] Address"),
        (MissingWeights("vgg16 needs a file", "lr"), "vgg16 needs a file (--lr)"),
    ],
)
def test_an_error_becomes_a_sentence(error: Exception, expected: str) -> None:
    app = typer.Typer()

    @app.command()
    def command(
        recipe: str,
        lr: Annotated[float, typer.Option()] = 0,
        style_weight: Annotated[float, typer.Option()] = 0,
        set_: Annotated[str, typer.Option("--set")] = "",
        out: Annotated[str, typer.Option()] = "",
        resume: Annotated[bool, typer.Option("--resume")] = False,
    ) -> None:
        with report_errors():
            raise error

    result = CliRunner().invoke(app, ["x"])
    assert result.exit_code == 2
    assert result.output.startswith(expected)
    assert result.output.count("\n") == 1


def test_an_interrupt_has_its_own_message_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stopped, report_errors(lambda: "continue with [this]"):
        raise KeyboardInterrupt
    assert stopped.value.exit_code == 130
    assert capsys.readouterr().err == "continue with [this]\n"


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("a bug"), typer.Exit(1)])
def test_defects_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, report_errors():
        raise error
    assert raised.value is error
