"""Training in two processes over gloo. In float64, because rounding errors of float32 grow with every step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training import noise_pictures

ROOT = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.skipif(not torch.distributed.is_available() or sys.platform != "linux", reason="needs gloo and fork")
def test_two_processes_equal_one_with_the_same_batches(tmp_path: Path) -> None:
    for seed, role in enumerate(("content", "style")):
        noise_pictures(tmp_path / role, 3, seed=seed)
    command = [sys.executable, str(Path(__file__).with_name("two_processes.py")), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    differences = json.loads(done.stdout.splitlines()[-1])
    assert len(differences) == 8
    assert max(differences.values()) < 1e-5, differences
    written = [sorted(p.name for p in (tmp_path / "two" / name).iterdir()) for name in differences if "dg" in name]
    assert all("model.safetensors" in names for names in written)
