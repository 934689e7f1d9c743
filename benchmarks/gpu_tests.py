"""Run all tests that need a GPU, several files or parts of files at a time, and write one record.

    python benchmarks/gpu_tests.py [--jobs N] [--out FILE]

Every file runs in its own process, so that a failed capture or leaked memory does not affect the others.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from records import ROOT, make_parser, write_record

# files that take more than 40 s on an H200, which start first, and the number of processes that share their tests
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


def tested(tests: list[str], report: Path) -> tuple[str, Counter[str]]:
    """Return the file and the outcomes of the tests of one process. A process that ends without a report is an error."""
    done = run_pytest(*tests, f"--junitxml={report}")
    name = tests[0].split("::")[0]
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr.strip()[-300:]]
    print(f"{name}: {last[0]}", flush=True)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-1000:], flush=True)
    if not report.exists():
        return name, Counter(error=1)
    suite = ElementTree.parse(report).getroot()[0]
    failed, error, skipped = (int(suite.attrib[key]) for key in ("failures", "errors", "skipped"))
    passed = int(suite.attrib["tests"]) - failed - error - skipped
    return name, +Counter(passed=passed, failed=failed, error=error, skipped=skipped)  # without zeros


def merged(outcomes: Iterable[tuple[str, Counter[str]]]) -> dict[str, Any]:
    files: dict[str, Counter[str]] = {}
    for name, counts in outcomes:
        files[name] = files.get(name, Counter()) + counts
    total = sum(files.values(), Counter[str]())
    return {"selected": "gpu", "total": dict(total), "files": {name: dict(files[name]) for name in sorted(files)}}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--jobs", type=int, default=4)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    from efdm.training.device import default_device

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        tests = gpu_tests()
        record = merged(pool.map(tested, tests, (Path(folder) / f"{number}.xml" for number in range(len(tests)))))
    print(record["total"])
    write_record(record, given.out, "gpu-tests.json", default_device())


if __name__ == "__main__":
    main()
