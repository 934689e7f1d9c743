from __future__ import annotations

from pathlib import Path

import pytest
import torch

from efdm.apps.devices import pick_device


def test_without_a_name_it_is_the_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("") == torch.device("cpu")


@pytest.mark.parametrize(
    "name", ["cudaa", "cuda:99", "cpu:x", "meta"], ids=["typo", "no_such_gpu", "no_number", "no_values"]
)
def test_what_cannot_be_used_is_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=f"--device {name} cannot be used here; try --device cpu"):
        pick_device(name)


def test_the_evaluation_asks_here_too(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from efdm.apps.cli.group import app

    words = ["evaluate", "style", "-o", f"{tmp_path}/run", "--content", "a", "--style", "b", "--device", "cudaa"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "--device cudaa cannot be used here; try --device cpu" in result.output
