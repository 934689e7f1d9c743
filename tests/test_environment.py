from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
import torch

from efdm.environment import environment


def test_git_is_not_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EFDM_COMMIT", raising=False)
    assert environment("cpu")["commit"] == ""


@pytest.mark.parametrize("package", ["efdm", "torch", "timm"])
def test_an_installed_package_is_told_by_its_version(package: str) -> None:
    pytest.importorskip(package)
    assert environment("cpu")["versions"][package] == importlib.metadata.version(package)  # type: ignore[index]


def test_the_gpu_that_is_named_is_the_one_that_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {None: "the current one", torch.device("cuda:0"): "first", torch.device("cuda:1"): "second"}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: names[device])
    assert [environment(f"cuda:{i}")["device_name"] for i in (0, 1)] == ["first", "second"]
