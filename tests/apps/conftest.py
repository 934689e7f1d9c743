"""Fixtures of commands: a wide terminal; a network, a folder with pictures and the command `efdm stylize`."""

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from efdm.data import write_picture
from efdm.models import build
from efdm.models.weights import save_network

# the command is optional; its imports are inside the fixtures
collect_ignore_glob = [] if find_spec("typer") else ["*"]


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tables independent of the terminal that runs the tests, and skip TensorBoard, which takes seconds to import."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    from efdm.apps.cli import printing

    monkeypatch.setattr(printing.console, "width", 200)
    monkeypatch.setattr(printing.messages, "width", 200)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "network.safetensors"
    save_network(build("small"), path, {})
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two contents, three styles and two masks."""
    monkeypatch.chdir(tmp_path)
    for name in ("contents/a", "contents/sub/b", "styles/x", "styles/y", "photo", "style", "wide"):
        write_picture(tmp_path / f"{name}.png", torch.rand(3, 20, 40 if name == "wide" else 24))
    mask = torch.zeros(3, 20, 24)
    mask[:, :, :12] = 1
    write_picture(tmp_path / "left.png", mask)
    write_picture(tmp_path / "right.png", 1 - mask)
    return tmp_path


@pytest.fixture
def run(weights: Path):
    from commands import invoke

    return partial(invoke, "stylize", "--weights", weights, "--device", "cpu")
