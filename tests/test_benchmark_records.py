"""Committed benchmark records are complete and successful."""

import re
import subprocess

import pytest
from records import CORE, MEASURED, RESULTS, ROOT, changes_since, read_record


def test_every_record_is_listed() -> None:
    assert {p.name for p in RESULTS.glob("*.json")} == set(MEASURED)


@pytest.mark.parametrize("name", MEASURED)
def test_a_record_names_its_environment(name: str) -> None:
    environment = read_record(name)["environment"]
    assert environment["device_name"]
    assert environment["versions"]["torch"]
    assert re.fullmatch(r"[0-9a-f]{12}", environment["commit"]), "made from a tree with uncommitted changes"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", environment["date"])


def git(*words: str) -> subprocess.CompletedProcess[str]:
    if subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True).stdout != b"false\n":
        pytest.skip("needs a git checkout with its history")
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", MEASURED)
def test_the_commit_of_a_record_is_in_the_history(name: str) -> None:
    assert git("merge-base", "--is-ancestor", read_record(name)["environment"]["commit"], "HEAD").returncode == 0


def test_changes_since_a_commit_outside_the_history_are_unknown() -> None:
    assert "history" in changes_since("0" * 12, CORE)


def test_the_gpu_tests_passed() -> None:
    """A file with failures must have been changed since."""
    record = read_record("gpu-tests.json")
    assert record["environment"]["device"] == "cuda"
    assert record["selected"] == "gpu"
    assert record["total"]["passed"] > 200
    failed = {name for name, counts in record["files"].items() if {"failed", "error"} & counts.keys()}
    if failed:
        changed = git("diff", "--name-only", record["environment"]["commit"], "HEAD", "--", "tests").stdout.split()
        assert failed <= set(changed)
