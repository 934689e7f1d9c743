from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Small pictures gain nothing from a second thread, and on a busy machine two threads that wait for each other are many times
# slower than one. Set before torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from efdm.models import allow_torchvision

# Background jobs of a shell, and the processes they start, ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
allow_torchvision()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def quickly() -> Iterator[None]:
    """Move indices of few iterations at a time, so that a run has several blocks; disable TensorBoard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("efdm.recognition.training.BLOCK", 4)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="write counts and the environment to this JSON file")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    out = config.getoption("--record")
    if out is None:
        return
    from efdm.environment import environment

    files: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            files.setdefault(report.nodeid.split("::")[0], Counter())[outcome] += 1
    total = sum(files.values(), Counter())
    record = {
        "environment": environment("cuda" if torch.cuda.is_available() else "cpu"),
        "selected": config.getoption("-m"),
        "total": dict(total),
        "files": {name: dict(counts) for name, counts in sorted(files.items())},
    }
    out.write_text(json.dumps(record, indent=1) + "\n")
