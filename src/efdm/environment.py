"""Where a record was made: device, versions, commit and date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parent
PACKAGES = ("efdm", "torch", "numba", "numpy", "triton", "timm")  # timm: networks, and the weights that they begin with


def environment(device: str | torch.device) -> dict[str, object]:
    device = torch.device(device)
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": os.environ.get("EFDM_COMMIT") or _commit(),  # the variable is for a copy without git
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str:
    """Of the repository that has this file; a package that is installed somewhere within another is not of its commit."""

    def git(*words: str) -> str:
        try:
            return subprocess.run(["git", *words], capture_output=True, text=True, cwd=HERE, check=False).stdout.strip()
        except OSError:  # there is no git
            return ""

    if not git("ls-files", "environment.py"):
        return ""
    return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if git("status", "--porcelain", "-uno") else "")
