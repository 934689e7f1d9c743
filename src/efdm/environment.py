"""The environment of a record: device, versions, commit and date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parent
PACKAGES = ("efdm", "torch", "numba", "numpy", "triton", "timm")  # timm supplies networks and weights


def environment(device: str | torch.device) -> dict[str, object]:
    """Return the device, package versions, commit and date, ready for JSON."""
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
        "commit": os.environ.get("EFDM_COMMIT") or _commit(),  # the variable is for copies without git
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str:
    """Return the commit of the repository that tracks this file, or "" if no repository tracks it."""

    def git(*words: str) -> str:
        try:
            return subprocess.run(["git", *words], capture_output=True, text=True, cwd=HERE, check=False).stdout.strip()
        except OSError:  # git is not installed
            return ""

    tracked = git("ls-files", "environment.py")
    return git("describe", "--always", "--exclude=*", "--abbrev=12", "--dirty") if tracked else ""
