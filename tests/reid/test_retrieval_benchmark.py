import json
import sys
from pathlib import Path

import pytest
import retrieval as benchmark
from records import read_record


def test_the_benchmark_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "retrieval.json"
    small = ["--queries", "30", "--pictures", "3000", "--dimensions", "8", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["retrieval.py", "--device", "cpu", "--out", str(out), *small])
    benchmark.main()
    record = json.loads(out.read_text())
    assert (record["queries"], record["pictures"], record["dimensions"]) == (30, 3000, 8)
    assert record["environment"]["device"] == "cpu"
    rows = record["rows"]
    assert list(rows)[:2] == ["efdm", "efdm_k_reciprocal"]
    assert len(rows) > 2
    assert all(row["seconds"] > 0 for row in rows.values())
    assert all(row["difference"] < 1e-6 for name, row in rows.items() if name != "efdm_k_reciprocal")
    assert 0 < rows["efdm"]["mean_ap"] < 1


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
