"""Jobs on a local Ray with two workers: the pictures of the plain engine, none lost and none twice."""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulk_processes import BLACK, WHITE, Negatives, write_pictures
from data.test_bulk import results

from efdm.data import write_picture
from efdm.data.bulk import open_job, run_job

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def two_workers() -> Iterator[None]:
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    environment = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[1])}}
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(num_cpus=2, num_gpus=0, runtime_env=environment, **quiet)
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, handler)  # which ray.init replaces


def test_the_pictures_of_the_plain_engine(tmp_path: Path) -> None:
    write_pictures(tmp_path / "in", 12)
    (tmp_path / "in/p3.png").write_bytes(b"nothing")
    done = {}
    for engine in ("plain", "ray"):
        job = open_job(tmp_path / "in", tmp_path / engine, {}, "shards")
        done[engine] = run_job(job, Negatives(tmp_path / f"{engine}-starts"), engine=engine, workers=2)
    assert done["plain"] == done["ray"]
    assert (done["ray"].done, list(done["ray"].failed)) == (11, [str(tmp_path / "in/p3.png")])
    plain, other = ({p.name: p.read_bytes() for p in (tmp_path / engine).glob("*.tar")} for engine in done)
    assert plain == other
    assert len(results(tmp_path / "ray")) == 11
    assert len(list((tmp_path / "ray-starts").iterdir())) == 2, "each worker makes the process once"


def test_workers_that_die_lose_nothing(tmp_path: Path) -> None:
    write_pictures(tmp_path / "in", 5)
    write_picture(tmp_path / "in/once.png", WHITE)
    write_picture(tmp_path / "in/always.png", BLACK)
    starts = Negatives(tmp_path / "starts")
    done = run_job(open_job(tmp_path / "in", tmp_path / "out", {}, "shards"), starts, engine="ray", workers=2)
    assert sorted(results(tmp_path / "out")) == ["once-negative", *(f"p{i}-negative" for i in range(5))]
    assert done.done == 6
    assert list(done.failed) == ["unit 000000"]  # that of always.png
    assert "3 times" in done.failed["unit 000000"]
    assert (tmp_path / "starts/killed").exists()
