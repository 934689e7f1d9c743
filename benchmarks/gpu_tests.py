"""Run all tests that need a GPU, a process per file or part of a file, several at a time, and write one record of them.

    python benchmarks/gpu_tests.py [--jobs N] [--out FILE]

Files run in processes of their own, so that a broken capture or leaked memory does not affect the next.
"""

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

from records import ROOT, make_parser, write_record

# files of more than 40 s on an H200, and the processes that share their tests: they start first
PARTS = {
    "tests/dg/test_dg_step.py": 5,
    "tests/kernels/test_kernels.py": 4,
    "tests/reid/test_reid_step.py": 4,
    "tests/style/test_train_resumed.py": 2,
    "tests/dg/test_dg_together.py": 2,
}
PYTEST = (sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider")


def gpu_tests() -> list[list[str]]:
    """Return the tests of each process. Exit with pytest's output if it cannot collect them."""
    done = run_pytest("--collect-only")
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    if done.returncode or not tests:
        sys.exit(f"pytest collected no GPU tests:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.split("::")[0], []).append(test)
    slow = [files[name][part::parts] for name, parts in PARTS.items() for part in range(parts)]
    return [*slow, *([name] for name in sorted(files, key=lambda name: -len(files[name])) if name not in PARTS)]


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the GPU tests with the package of this checkout, installed or not."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [*PYTEST, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def tested(tests: list[str], record: Path) -> dict[str, Any]:
    """Return the record of one process. A process that ends without writing one counts as an error."""
    done = run_pytest(*tests, "--record", str(record))
    name = tests[0].split("::")[0]
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
    files: dict[str, Counter[str]] = {}
    for name, counts in (row for part in parts for row in part["files"].items()):
        files[name] = files.get(name, Counter()) + Counter(counts)
    return {**known, "selected": "gpu", "total": dict(total), "files": {name: dict(files[name]) for name in sorted(files)}}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--jobs", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        tests = gpu_tests()
        record = merged(pool.map(tested, tests, (Path(folder) / f"{number}.json" for number in range(len(tests)))))
    print(record["total"])
    write_record(record, given.out, "gpu-tests.json")


if __name__ == "__main__":
    main()
