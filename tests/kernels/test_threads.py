"""The CPU kernel is called from several threads, and after a fork, by people who serve models and load data."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tolerances import close

from efdm import kernels
from efdm.kernels import cpu_threads, reference


@pytest.mark.parametrize("n", [500, 2000])
def test_from_many_threads_at_once(n: int) -> None:
    x, y = torch.randn(200, n), torch.randn(200, n)
    expected = reference.sort_match(x, y)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kernels.sort_match(x, y), range(32)))
    assert all(torch.equal(f, expected) for f in found)


@pytest.fixture
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["torch's", "ours"])
def _whose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "ours":
        monkeypatch.setattr(cpu_threads, "_team", lambda: None)
    elif cpu_threads._team() is None:
        pytest.skip("torch came without GNU's OpenMP")


@pytest.mark.skipif(not torch.backends.openmp.is_available() or sys.platform != "linux", reason="no OpenMP")
def test_torchs_own_threads_are_found() -> None:
    """On Linux torch's packages bring GNU's OpenMP; where this fails, matches between convolutions are slow."""
    assert cpu_threads._team() is not None


@pytest.mark.usefixtures("_three_threads", "_whose")
@pytest.mark.parametrize("who", ["this", "another"])
def test_an_error_of_any_thread_is_raised(who: str) -> None:
    here, all_three, began = threading.get_ident(), threading.Barrier(3), set()

    def work(first: int, last: int) -> None:
        me = threading.get_ident()
        if me not in began:
            began.add(me)
            all_three.wait(10)
        if who == ("this" if me == here else "another"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cpu_threads.parallel_rows(work, 1200, 1000)


@pytest.mark.usefixtures("_three_threads", "_whose")
@pytest.mark.parametrize("slow", ["this", "another", "no"])
def test_every_row_is_done_once_whichever_thread_is_slow(slow: str) -> None:
    done, here = [0] * 1000, threading.get_ident()

    def work(first: int, last: int) -> None:
        if slow == ("this" if threading.get_ident() == here else "another"):
            time.sleep(0.01)
        for row in range(first, last):
            done[row] += 1

    cpu_threads.parallel_rows(work, 1000, 1000)
    assert done == [1] * 1000


@pytest.mark.usefixtures("_three_threads", "_whose")
@pytest.mark.parametrize("n", [100, 2000])
@pytest.mark.parametrize("layout", ["rows", "channels last"])
def test_shared_among_threads(n: int, layout: str) -> None:
    x, partner, weight = torch.randn(8, 70, n), torch.arange(8).flip(0), torch.linspace(0, 1, 8)
    if layout == "channels last":
        x = x.mT.contiguous().mT
    close(kernels.mix_partners(x, partner, weight), reference.mix_partners(x, partner, weight))
    assert torch.equal(kernels.sort_rows(x), reference.sort_rows(x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.slow
def test_after_a_fork() -> None:
    script = """
        import os, torch
        from efdm import kernels
        from efdm.kernels import reference
        torch.set_num_threads(2)
        x, y = torch.randn(64, 2000), torch.randn(64, 2000)
        kernels.sort_match(x, y)
        child = os.fork()
        if child == 0:
            found = kernels.sort_match(x, y)
            torch.set_num_threads(1)  # torch's own operations wait for workers that did not come along
            os._exit(0 if torch.equal(found, reference.sort_match(x, y)) else 1)
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
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), kernels.ENV_VARIABLE: name}
    hits = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, check=True
        )
        hits.append(done.stdout.split())
    assert hits == [["0", "1"], ["1", "0"]]
