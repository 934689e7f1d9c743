from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gpu_tests


def test_a_failed_collection_shows_the_output_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 2, "ERROR tests/conftest.py", "No module named 'efdm'")
    monkeypatch.setattr(gpu_tests, "run_pytest", lambda *_: done)
    with pytest.raises(SystemExit, match="No module named 'efdm'"):
        gpu_tests.gpu_tests()


def test_outcomes_are_counted_and_a_lost_process_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report, done = tmp_path / "report.xml", subprocess.CompletedProcess([], 1, "1 failed", "")
    report.write_text('<testsuites><testsuite tests="4" failures="1" errors="0" skipped="1"/></testsuites>')
    monkeypatch.setattr(gpu_tests, "run_pytest", lambda *_: done)
    parts = [gpu_tests.tested(["b::one", "b::two"], report), gpu_tests.tested(["a"], tmp_path / "missing.xml")]
    record = gpu_tests.merged([*parts, parts[0]])
    assert record["files"] == {"a": {"error": 1}, "b": {"passed": 4, "failed": 2, "skipped": 2}}
    assert record["total"] == {"passed": 4, "failed": 2, "skipped": 2, "error": 1}


def test_pytest_finds_the_package_without_pythonpath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    seen: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda *_, env, **__: seen.append(env["PYTHONPATH"]))
    gpu_tests.run_pytest()
    assert seen == [str(gpu_tests.ROOT / "src")]
