"""Run all tests that need a GPU, one process for each file, several at a time, and write one record of them.

    python benchmarks/gpu_tests.py [--jobs N] [--out FILE]

Processes of their own: what one file leaves on the device (a broken capture, memory) does not reach the next.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider")


def files_with_gpu_tests() -> list[str]:
    told = subprocess.run([*PYTEST, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    counts = Counter(line.split("::")[0] for line in told.splitlines() if "::" in line)
    return [name for name, _ in counts.most_common()]  # the longest first, so that the last ones are short


def tested(name: str, folder: Path) -> dict[str, Any]:
    """The record of one file; a process that died before it wrote one counts as an error."""
    record = folder / f"{name.replace('/', '-')}.json"
    done = subprocess.run([*PYTEST, name, "--record", str(record)], cwd=ROOT, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr.strip()[-300:]]
    print(f"{name}: {last[0]}", flush=True)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-1000:], flush=True)
    if not record.exists():
        return {"total": {"error": 1}, "files": {name: {"error": 1}}}
    read: dict[str, Any] = json.loads(record.read_text())
    return read


def merged(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    parts = list(records)
    known = next(part for part in parts if "environment" in part)
    total = sum((Counter(part["total"]) for part in parts), Counter[str]())
    files = {name: counts for part in parts for name, counts in part["files"].items()}
    return {
        "environment": known["environment"],
        "selected": "gpu",
        "total": dict(total),
        "files": dict(sorted(files.items())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "gpu-tests.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        record = merged(pool.map(lambda name: tested(name, Path(folder)), files_with_gpu_tests()))
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{record['total']}, written to {given.out}")


if __name__ == "__main__":
    main()
