"""The units of a job on Ray Data, with one actor per worker."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from efdm.data.bulk import Done, Factory, Job, Unit, run_unit
from efdm.errors import requires

CORES = 2  # per worker without a GPU
ATTEMPTS = 3  # at a unit whose workers die; then the other units go on without it


class Worker:
    """Makes the process once and runs units with it."""

    def __init__(self, job: Job, factory: Factory, device: str) -> None:
        self.job, self.process = job, factory(device)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        unit: Unit = pickle.loads(row["unit"])
        attempts = self.job.mark(unit).with_suffix(".attempts")  # survives a worker that dies
        if attempts.exists() and attempts.stat().st_size >= ATTEMPTS:
            done = Done(unit.name, 0, {f"unit {unit.name}": f"its worker died {ATTEMPTS} times; run the job again"})
        else:
            with open(attempts, "ab") as file:
                file.write(b".")
            done = run_unit(self.job, unit, self.process)
            attempts.unlink()
        return {**done._asdict(), "failed": [list(pair) for pair in done.failed.items()]}


def run_on_ray(job: Job, units: Sequence[Unit], factory: Factory, workers: int | None) -> Iterator[Done]:
    """Yield the counts of units as they finish.

    Joins the cluster at ``RAY_ADDRESS``, or starts Ray on this machine and stops it at the end. A worker reads and writes
    the files itself: only units and counts pass through Ray, so its memory does not grow with the pictures.
    """
    with requires("scale"):
        import ray
        import ray.data

    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    for unit in units:
        job.mark(unit).with_suffix(".attempts").unlink(missing_ok=True)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        there = ray.cluster_resources()
        gpus, cores = int(there.get("GPU", 0)), int(there.get("CPU", 1))
        count = min(workers or gpus or max(1, cores // CORES), len(units))
        share: dict[str, Any] = {"num_gpus": min(1, gpus / count)} if gpus else {"num_cpus": max(1, cores // count)}
        # one block per unit, so that a worker that dies costs one unit
        rows = ray.data.from_items([{"unit": pickle.dumps(unit)} for unit in units], override_num_blocks=len(units))
        results = rows.map(
            Worker,  # type: ignore[arg-type]
            fn_constructor_args=(replace(job, units=()), factory, "cuda" if gpus else "cpu"),
            compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            **share,
        )
        for row in results.iter_rows():
            yield Done(row["unit"], row["done"], dict(row["failed"]))
    finally:
        if started:
            ray.shutdown()
