"""CPU kernels with several calling threads, with several worker threads and after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest
import torch
from tolerances import close

from efdm import kernels
from efdm.kernels import cpu_threads, reference


@pytest.mark.parametrize("n", [500, 2000])
def test_calls_from_several_threads(n: int) -> None:
    x, y = torch.randn(200, n), torch.randn(200, n)
    expected = reference.sort_match(x, y)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: kernels.sort_match(x, y), range(32)))
    assert all(torch.equal(result, expected) for result in results)


@pytest.fixture(params=["openmp", "pool"])
def _workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pool":
        monkeypatch.setattr(cpu_threads, "_openmp", lambda: None)
    elif cpu_threads._openmp() is None:
        pytest.skip("this build of torch does not use GNU OpenMP")


@pytest.mark.skipif(not torch.backends.openmp.is_available() or sys.platform != "linux", reason="no OpenMP")
def test_openmp_of_torch_is_found() -> None:
    assert cpu_threads._openmp() is not None, "without it, matches between convolutions are slow"


@pytest.mark.usefixtures("three_threads", "_workers")
@pytest.mark.parametrize("failing", ["caller", "worker"])
def test_exceptions_of_any_thread_are_raised(failing: str) -> None:
    caller, all_started, started = threading.get_ident(), threading.Barrier(3), set()

    def work(first: int, end: int) -> None:
        thread = threading.get_ident()
        if thread not in started:
            started.add(thread)
            all_started.wait(10)
        if failing == ("caller" if thread == caller else "worker"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cpu_threads.parallel_rows(work, 1200, 1000)


@pytest.mark.usefixtures("three_threads", "_workers")
@pytest.mark.parametrize("slow", ["caller", "worker"])
def test_every_row_is_processed_once(slow: str) -> None:
    counts, caller = [0] * 1000, threading.get_ident()

    def work(first: int, end: int) -> None:
        if slow == ("caller" if threading.get_ident() == caller else "worker"):
            time.sleep(0.01)
        for row in range(first, end):
            counts[row] += 1

    cpu_threads.parallel_rows(work, 1000, 1000)
    assert counts == [1] * 1000


@pytest.mark.usefixtures("three_threads", "_workers")
@pytest.mark.parametrize("n", [100, 2000])
def test_several_threads_give_the_same_result(n: int) -> None:
    x, partner, weight = torch.randn(8, 70, n), torch.arange(8).flip(0), torch.linspace(0, 1, 8)
    for features in (x, x.mT.contiguous().mT):
        close(kernels.mix_partners(features, partner, weight), reference.mix_partners(x, partner, weight))
        assert torch.equal(kernels.sort_rows(features), reference.sort_rows(x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.slow
def test_after_fork() -> None:
    script = """
        import os, torch
        from efdm import kernels
        from efdm.kernels import reference
        torch.set_num_threads(2)
        x, y = torch.randn(64, 2000), torch.randn(64, 2000)
        kernels.sort_match(x, y)
        child = os.fork()
        if child == 0:
            result = kernels.sort_match(x, y)
            torch.set_num_threads(1)  # torch's own operations would wait for workers that the child does not have
            os._exit(0 if torch.equal(result, reference.sort_match(x, y)) else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)


def test_compiled_code_is_cached_on_disk() -> None:
    np = pytest.importorskip("numpy")
    radix, network = (import_module(f"efdm.kernels.cpu_{name}") for name in ("radix", "network"))
    calls = [(radix.content_key, np.uint32(5), 0x7F800000), (network.sort_lanes, np.zeros(3 * network.LANES, "u8"))]
    for compiled, *arguments in calls:
        compiled(*arguments)
        fresh = radix._jit(compiled.py_func)
        fresh(*arguments)
        assert sum(fresh.stats.cache_hits.values()) == 1
