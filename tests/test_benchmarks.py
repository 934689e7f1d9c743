"""Benchmarks run on small inputs, and their committed records are complete and successful."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import baselines
import dg
import numpy as np
import projection
import pytest
import records
import retrieval
import style_methods
import table3
import torch
from records import CORE, MEASURED, RESULTS, ROOT, changes_since, read_record

from efdm import EFDMix
from efdm.data import read_picture, write_picture
from efdm.data.digits import load_digits_domains
from efdm.dg.settings import Settings
from efdm.lab import load_recipe, run
from efdm.models import build
from efdm.models.weights import save_network


def record_of(benchmark: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    """Return the record of a benchmark on the CPU."""
    out = folder / "record.json"
    monkeypatch.setattr(sys, "argv", [str(benchmark.__file__), *words, "--device", "cpu", "--out", str(out)])
    benchmark.main()
    record = json.loads(out.read_text())
    assert record["environment"]["device"] == "cpu"
    return record


def test_training_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["--batch", "4", "--size", "16", "--rounds", "2", "--steps", "1", "--lanes", "2"]
    record = record_of(dg, tmp_path, monkeypatch, *small)
    (steps,) = record["steps"]
    assert list(steps["times"]) == ["erm", "mixstyle", "efdmix", "efdmix-flow", "distribution-noise", "three_sort"]
    assert steps["times"]["erm"]["to_erm"] == 1
    assert [row["lanes"] for row in record["lanes"]] == [2]
    for row in (steps, *record["lanes"]):
        assert row["stages"] == list(load_recipe("digits_demo").settings["stages"])


@pytest.mark.parametrize("backbone", dg.RECIPES)
def test_timed_stages_and_augmentation_are_those_of_the_recipes(backbone: str) -> None:
    timed = dg.with_recipe(Settings("noise", ("a",), ("b",)), backbone)
    recipe = load_recipe(dg.RECIPES[backbone])
    assert recipe.settings["backbone"].startswith(backbone)  # "resnet50_v1" has the shapes of "resnet50"
    assert (timed.stages, timed.augmentation) == (recipe.settings["stages"], recipe.settings["augmentation"])


def test_the_compared_layers_compute_the_same() -> None:
    features = torch.rand(6, 3, 5, 5)
    outputs = []
    for layer in (EFDMix(p=1.0), dg.ThreeSort(p=1.0)):
        torch.manual_seed(1)
        outputs.append(layer(features))
    torch.testing.assert_close(*outputs)
    assert not torch.allclose(outputs[0], features)
    torch.testing.assert_close(baselines.three_sort(features, features.flip(0)).sum(), features.sum())


def test_retrieval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["--queries", "30", "--pictures", "3000", "--dimensions", "8", "--rounds", "2"]
    record = record_of(retrieval, tmp_path, monkeypatch, *small)
    assert (record["queries"], record["pictures"], record["dimensions"]) == (30, 3000, 8)
    rows = record["rows"]
    assert list(rows)[:2] == ["efdm", "efdm_k_reciprocal"]
    assert len(rows) > 2
    assert all(row["seconds"] > 0 for row in rows.values())
    assert all(row["difference"] < 1e-6 for name, row in rows.items() if name != "efdm_k_reciprocal")
    assert 0 < rows["efdm"]["mean_ap"] < 1


def test_projection_of_the_runs_of_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_digits_domains(per_domain=20)
    run(load_recipe("digits_demo"), data, tmp_path, seeds=[0], methods=["erm"], domains=["ink"], iterations=1, batch=8)
    monkeypatch.setattr(projection, "load_data", lambda *_: data)
    rows = record_of(projection, tmp_path, monkeypatch, str(tmp_path))["rows"]
    assert [row["method"] for row in rows] == ["none", *["efdm"] * 4, *["adain"] * 4]
    assert {(row["row"], row["seed"], *row["counts"]) for row in rows} == {("erm", 0, "ink")}


def test_times_and_pictures_of_every_method_of_table_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one small pair, with a random decoder."""
    monkeypatch.chdir(tmp_path)
    for folder, name in zip(("content", "style"), table3.PAIRS[0], strict=True):
        write_picture(f"inputs/{folder}/{name}.png", torch.rand(3, 40, 48))
    save_network(build("vgg19"), "decoder.safetensors", {})
    monkeypatch.setitem(table3.ROUNDS, "cpu", 1)
    words = "--inputs inputs --out out --decoder efdm=decoder.safetensors --side 32 --size 32 --iterations 1 --device cpu"
    table3.main(words.split())
    times = {row["method"]: row for row in json.loads(Path("out/times.json").read_text())["times"]}
    assert set(times) == {*table3.METHODS, "hm-skimage"}
    assert times["gatys"]["share_timed"] == 1 / 500
    (name,) = {path.name for path in Path("out").rglob("*.png")}
    made = {method: read_picture(Path("out") / method / name).rgb for method in table3.METHODS}
    assert all(picture.shape == (3, 32, 38) for picture in made.values())
    assert not torch.equal(made["gatys"], made["cmd"])


def test_published_histogram_matching_equals_ours() -> None:
    network = build("vgg19").eval()
    content, style = torch.rand(2, 1, 3, 32, 32)
    torch.testing.assert_close(
        table3.with_skimage(network)(content, style), table3.trained(network, "hm")(content, style), atol=1e-4, rtol=0
    )


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


def test_changes_of_comments_and_docstrings_are_no_changes_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {
        "before": '"""Old."""\ndef f(x):\n    """Old."""\n    return x  # old\n',
        "comment": '"""New."""\ndef f(x):\n    return x  # new\n',
        "code": '"""Old."""\ndef f(x):\n    return 2 * x\n',
    }
    monkeypatch.setattr(records, "_git", lambda _, place: SimpleNamespace(stdout=versions[place.partition(":")[0]]))
    before, comment, code = (records._code(commit, "a.py") for commit in versions)
    assert before == comment
    assert before != code


def test_methods_of_style_transfer_are_compared_at_equal_content() -> None:
    """AdaIN's curve lies 0.02 above EFDM's, although its decoders have other content distances."""
    data: dict[str, dict[str, Any]] = {}
    noise = np.random.default_rng(0).normal(scale=0.005, size=(2, 2, 20))  # method, seed, pair
    for m, (method, shift) in enumerate({"efdm": 0.0, "adain": 0.03}.items()):
        weights, seeds = style_methods.RUNS[method]
        for (k, weight), seed in itertools.product(enumerate(weights), seeds):
            content = np.array([0.3, 0.4, 0.5])[:, None] + 0.02 * k + shift + noise[m, seed]
            style = 1 - content + 0.02 * m
            measures = dict.fromkeys(style_methods.AT_EQUAL_CONTENT, style)
            data[style_methods.run_name(method, weight, seed)] = {"lpips": content, **measures}
    found = style_methods.compare(data)
    assert set(found) == {
        *(f"{measure} at equal lpips, efdm - adain" for measure in style_methods.AT_EQUAL_CONTENT),
        "lpips at equal style_distance, efdm - adain",
    }
    for row in found.values():
        assert row["mean"] == pytest.approx(-0.02, abs=1e-3)
        assert row["error"] < 2e-3


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


@pytest.mark.parametrize(("device", "most"), [("cpu", 25.0), ("cuda", 1.5)])
def test_retrieval_meets_its_targets(device: str, most: float) -> None:
    """Seconds at the size of Market-1501; on a CPU also the ratio to torchreid's evaluator in Python."""
    record = read_record(f"retrieval-{device}.json")
    assert (record["queries"], record["pictures"], record["dimensions"]) == (3368, 15_913, 512)
    rows = record["rows"]
    assert rows["efdm"]["seconds"] <= most
    assert all(row["difference"] <= 1e-6 for name, row in rows.items() if name != "efdm_k_reciprocal")
    if device == "cpu":
        assert rows["torchreid_python"]["seconds"] >= 5 * rows["efdm"]["seconds"]
