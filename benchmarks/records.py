"""Records of benchmarks. As a script, list them with their commits and the changes of the measured code since then.

    python benchmarks/records.py

Rerun the benchmarks of stale records before a release. The exit status is 1 if a record is stale.
"""

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from efdm.text import first_few

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CORE = ("src/efdm/kernels", "src/efdm/ops")
TRAINING = (*CORE, "src/efdm/nn", "src/efdm/training")
PIXELS = tuple(f"src/efdm/recognition/{name}" for name in ("stem.py", "pixels.py", "cuda.py", "cuda.cu"))
RETRIEVAL = (*CORE, "src/efdm/reid/retrieval.py", "src/efdm/reid/rerank.py")
STYLE = (*CORE, "src/efdm/models/small.py", "src/efdm/models/vgg.py", "src/efdm/style/pipeline.py")
COLOURS = tuple(f"src/efdm/style/{name}.py" for name in ("color_match", "levels", "levels_cpu", "planes", "color"))
# record -> the code that it measures
MEASURED: dict[str, tuple[str, ...]] = {
    "gpu-tests.json": (*TRAINING, *PIXELS),
    "joint-cpu.json": ("src/efdm/ops/joint.py",),
    "joint-cuda.json": CORE,
    "cpu.json": CORE,
    "cuda.json": CORE,
    "dg-cpu.json": TRAINING,
    "dg-cuda.json": (*TRAINING, *PIXELS),
    "colours-cpu.json": COLOURS,
    "colours-cuda.json": COLOURS,
    "large-cpu.json": (),  # a one-time check of a file with more than 2^31 values
    "photoreal.json": ("src/efdm/style/photoreal.py",),
    "pictures-cpu.json": STYLE,
    "pictures-cuda.json": STYLE,
    "retrieval-cpu.json": RETRIEVAL,
    "retrieval-cuda.json": RETRIEVAL,
    "export-cpu.json": (*CORE, "src/efdm/models/small.py", "src/efdm/style/export.py"),
    "hard-pairs.json": (*CORE, "src/efdm/models/small.py", "src/efdm/models/networks.py"),
    "tolerance.json": (),  # the choice of a default
    "precision-cpu.json": STYLE,
    "bulk-cpu.json": (),  # rates for an estimate
    "side-by-side.json": (),  # a one-time comparison of lanes and processes
    "projection-digits.json": ("src/efdm/ops/projection.py", "src/efdm/lab/analyses/projection.py"),
    "web.json": ("src/efdm/apps/web/handlers.py", "src/efdm/apps/web/page.py", "src/efdm/style/look.py"),
    "flicker.json": ("src/efdm/style/video.py", "src/efdm/style/motion.py", "benchmarks/clips.py"),
}


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the command line of a benchmark, with the option ``--out``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file of the record; by default in benchmarks/results")
    return parser


def write_record(content: dict[str, Any], out: Path | None, name: str, device: str = "cpu") -> dict[str, Any]:
    """Write a record to ``out``, by default to the file ``name`` in benchmarks/results, and print its path.

    Return the record: the content and, unless it has one, the environment of the measurement.
    """
    if "environment" not in content:
        from efdm.environment import environment

        content = {"environment": environment(device), **content}
    path = out or RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path}", flush=True)
    return content


def read_record(name: str) -> Any:
    """Return the content of a record in benchmarks/results."""
    return json.loads((RESULTS / name).read_text())


def changes_since(commit: str, paths: tuple[str, ...]) -> str:
    """Return the files of ``paths`` whose code has changed since a commit, as text, or "" if there are none.

    Changes of comments and docstrings do not count. Changes are unknown in a shallow clone or an archive, which has no
    history.
    """
    if not paths:
        return ""
    done = _git("diff", "--name-only", commit, "HEAD", "--", *paths)
    if done.returncode:
        return "unknown without the git history"
    changed = [Path(file).name for file in done.stdout.split() if _code(commit, file) != _code("HEAD", file)]
    return f"changed: {first_few(changed)}" if changed else ""


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def _code(commit: str, file: str) -> str:
    """Return a file at a commit; the code of a Python file, without comments and docstrings."""
    text = _git("show", f"{commit}:{file}").stdout
    if not file.endswith(".py"):
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def main() -> int:
    stale = 0
    for name, paths in MEASURED.items():
        environment = read_record(name)["environment"]
        changed = changes_since(environment["commit"], paths)
        stale += bool(changed)
        print(f"{name:22} {environment['commit']} {environment['date']}  {changed or 'current'}")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
