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


def test_commit_is_that_of_the_tracking_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that is installed inside another repository is not tracked by it."""
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
        pytest.skip("git is not installed")
    for file, expected in {"theirs.py": False, ".venv/efdm/environment.py": True}.items():
        git("add", "-f", file)
        git("commit", "-m", file)
        assert environment("cpu")["commit"] == (git("rev-parse", "--short=12", "HEAD") if expected else "")
    (installed / "environment.py").write_text("changed")
    assert str(environment("cpu")["commit"]).endswith("-dirty")


def test_versions_of_installed_packages() -> None:
    versions = environment("cpu")["versions"]
    assert versions["torch"] == importlib.metadata.version("torch")


def test_name_of_the_given_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {None: "current", torch.device("cuda:0"): "first", torch.device("cuda:1"): "second"}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: names[device])
    assert [environment(f"cuda:{i}")["device_name"] for i in (0, 1)] == ["first", "second"]
