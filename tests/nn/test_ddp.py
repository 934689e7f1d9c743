from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("ddp_worker.py")


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available() or sys.platform != "linux", reason="needs gloo and fork")
def test_two_processes(tmp_path: Path) -> None:
    command = [sys.executable, str(WORKER), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
