"""Committed benchmark records are complete, successful, and not older than the code that they measure."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CORE = ("src/efdm/kernels", "src/efdm/ops")
TRAINING = (*CORE, "src/efdm/nn", "src/efdm/training")
# what a captured step of the benchmark replays; hooks and tables run before
STEP = (*CORE, "src/efdm/training", *(f"src/efdm/nn/{name}.py" for name in ("mix", "layer", "draw", "pairing", "domains")))
RETRIEVAL = (*CORE, "src/efdm/reid/retrieval.py", "src/efdm/reid/rerank.py")
STYLE = (*CORE, "src/efdm/models/small.py", "src/efdm/models/vgg.py", "src/efdm/style/tiles.py")
COLOURS = tuple(f"src/efdm/style/{name}.py" for name in ("color_match", "levels", "planes", "spaces"))
# record -> the code that it measures
VOUCHES: dict[str, tuple[str, ...]] = {
    "gpu-tests.json": TRAINING,
    "cpu.json": CORE,
    "cuda.json": CORE,
    "dg-cpu.json": TRAINING,
    "dg-cuda.json": STEP,
    "colours-cpu.json": COLOURS,
    "pictures-cpu.json": STYLE,
    "pictures-cuda.json": STYLE,
    "retrieval-cpu.json": RETRIEVAL,
    "retrieval-cuda.json": RETRIEVAL,
    "export-cpu.json": (*CORE, "src/efdm/models/small.py", "src/efdm/style/export.py"),
    "bulk-cpu.json": (),  # rates for an estimate
    "side-by-side.json": (),  # a one-time comparison of lanes and processes
    "web.json": ("src/efdm/apps/web/handlers.py", "src/efdm/apps/web/page.py", "src/efdm/style/look_cache.py"),
    "flicker.json": ("src/efdm/style/video.py", "src/efdm/style/motion.py", "benchmarks/clips.py"),
}


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_record_is_listed() -> None:
    assert {p.name for p in RESULTS.glob("*.json")} == set(VOUCHES)


@pytest.mark.parametrize("name", VOUCHES)
def test_a_record_names_its_environment(name: str) -> None:
    environment = json.loads((RESULTS / name).read_text())["environment"]
    assert environment["device_name"]
    assert environment["versions"]["torch"]
    assert re.fullmatch(r"[0-9a-f]{12}", environment["commit"]), "made from a tree with uncommitted changes"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", environment["date"])


@pytest.mark.parametrize("name", VOUCHES)
def test_the_code_of_a_record_has_not_changed(name: str) -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs a git checkout with its history")
    commit = json.loads((RESULTS / name).read_text())["environment"]["commit"]
    if not VOUCHES[name]:
        return
    changed = git("diff", "--stat", commit, "HEAD", "--", *VOUCHES[name])
    assert (changed.returncode, changed.stdout) == (0, ""), f"{name} was made at {commit}; run its benchmark again"


def test_the_gpu_tests_passed() -> None:
    record = json.loads((RESULTS / "gpu-tests.json").read_text())
    assert record["environment"]["device"] == "cuda"
    assert record["selected"] == "gpu"
    assert record["total"]["passed"] > 200
    assert not {"failed", "error"} & record["total"].keys()
