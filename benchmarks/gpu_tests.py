"""Run all tests that need a GPU, one process per file, several at a time, and write one record of them.

    python benchmarks/gpu_tests.py [--jobs N] [--out FILE]

Each file runs in its own process, so that a broken capture or leaked memory does not affect the next.
"""

from __future__ import annotations

import argparse
import json
import os
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
    """Return the test files with GPU tests, the largest first. Exit with pytest's output if it cannot collect them."""
    done = run_pytest("--collect-only")
    counts = Counter(line.split("::")[0] for line in done.stdout.splitlines() if "::" in line)
    if done.returncode or not counts:
        sys.exit(f"pytest collected no GPU tests:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return [name for name, _ in counts.most_common()]


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the GPU tests with the package of this checkout, installed or not."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [*PYTEST, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def tested(name: str, folder: Path) -> dict[str, Any]:
    """Return the record of one file. A process that ends without writing one counts as an error."""
    record = folder / f"{name.replace('/', '-')}.json"
    done = run_pytest(name, "--record", str(record))
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
    known = next((part for part in parts if "environment" in part), None)
    if known is None:
        sys.exit("no test process wrote a record; their output is above")
    total = sum((Counter(part["total"]) for part in parts), Counter[str]())
    files = {name: counts for part in parts for name, counts in part["files"].items()}
    return {**known, "selected": "gpu", "total": dict(total), "files": dict(sorted(files.items()))}


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
