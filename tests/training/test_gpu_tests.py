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


def test_records_are_merged_and_missing_ones_are_reported() -> None:
    part = {"environment": {"device": "cuda"}, "total": {"passed": 2}, "files": {"b": {"passed": 2}}}
    lost = {"total": {"error": 1}, "files": {"a": {"error": 1}}}
    assert gpu_tests.merged([lost, part])["total"] == {"passed": 2, "error": 1}
    with pytest.raises(SystemExit, match="no test process wrote a record"):
        gpu_tests.merged([lost])


def test_pytest_finds_the_package_without_pythonpath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    seen: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda *_, env, **__: seen.append(env["PYTHONPATH"]))
    gpu_tests.run_pytest()
    assert seen == [str(gpu_tests.ROOT / "src")]
