from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

import pytest
import torch

from efdm import environment as module
from efdm.environment import environment


def test_git_is_not_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EFDM_COMMIT", raising=False)
    assert environment("cpu")["commit"] == ""


def test_the_commit_is_that_of_our_own_repository_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that was installed into a folder of somebody's repository is none of its files."""
    installed = tmp_path / ".venv" / "efdm"
    installed.mkdir(parents=True)
    (installed / "environment.py").touch()
    (tmp_path / "theirs.py").touch()
    monkeypatch.setattr(module, "HERE", installed)
    monkeypatch.delenv("EFDM_COMMIT", raising=False)

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    try:
        git("init")
    except OSError:
        pytest.skip("there is no git")
    for file, expected in {"theirs.py": False, ".venv/efdm/environment.py": True}.items():
        git("add", "-f", file)
        git("commit", "-m", file)
        assert environment("cpu")["commit"] == (git("rev-parse", "--short=12", "HEAD") if expected else "")
    (installed / "environment.py").write_text("changed")
    assert str(environment("cpu")["commit"]).endswith("-dirty")


@pytest.mark.parametrize("package", ["efdm", "torch", "timm"])
def test_an_installed_package_is_told_by_its_version(package: str) -> None:
    pytest.importorskip(package)
    assert environment("cpu")["versions"][package] == importlib.metadata.version(package)  # type: ignore[index]


def test_the_gpu_that_is_named_is_the_one_that_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {None: "the current one", torch.device("cuda:0"): "first", torch.device("cuda:1"): "second"}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: names[device])
    assert [environment(f"cuda:{i}")["device_name"] for i in (0, 1)] == ["first", "second"]
