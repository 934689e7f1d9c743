"""The CPU kernel is called from several threads, and after a fork, by people who serve models and load data."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from efdm import kernels
from efdm.kernels import reference


@pytest.mark.parametrize("n", [500, 2000])
def test_from_many_threads_at_once(n: int) -> None:
    x, y = torch.randn(200, n), torch.randn(200, n)
    expected = reference.sort_match(x, y)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kernels.sort_match(x, y), range(32)))
    assert all(torch.equal(f, expected) for f in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.slow
def test_after_a_fork() -> None:
    script = """
        import os, torch
        from efdm import kernels
        from efdm.kernels import reference
        x, y = torch.randn(64, 2000), torch.randn(64, 2000)
        kernels.sort_match(x, y)
        child = os.fork()
        if child == 0:
            torch.set_num_threads(2)
            os._exit(0 if torch.equal(kernels.sort_match(x, y), reference.sort_match(x, y)) else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu_network", "cpu_radix"])
def test_compiled_code_is_kept_between_runs(tmp_path, name: str) -> None:
    script = f"""
        import torch
        from efdm import kernels
        from efdm.kernels import {name}
        kernels.sort_match(torch.randn(2, 9), torch.randn(2, 9))
        stats = {name}.sort_match.stats
        print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), kernels.VARIABLE: name}
    hits = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, check=True
        )
        hits.append(done.stdout.split())
    assert hits == [["0", "1"], ["1", "0"]]
