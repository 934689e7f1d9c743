from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from efdm.training.interrupt import STOPS, stoppable, unbroken


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOPS)
def test_signals_wait_for_the_end_of_a_step(number: signal.Signals) -> None:
    steps = []

    def step() -> None:
        with unbroken():
            send(number)
            steps.append("half")
            steps.append("done")

    with stoppable():
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt):
            step()
        assert steps == ["half", "done"]
        assert number == signal.SIGTERM or signal.getsignal(number) is before
        with unbroken():
            steps.append("again")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_is_not_lost_when_the_step_fails() -> None:
    def step() -> None:
        with unbroken():
            send(signal.SIGINT)
            raise FloatingPointError

    with pytest.raises(KeyboardInterrupt):
        step()


def test_sigterm_saves_and_a_second_one_does_not_interrupt_the_saving() -> None:
    saved = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        except KeyboardInterrupt:
            send(signal.SIGTERM)
            saved.append(True)
            raise

    with pytest.raises(KeyboardInterrupt), stoppable():
        work()
    assert saved == [True]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_existing_handler_is_kept() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with stoppable():
            send(signal.SIGTERM)
            with unbroken():
                send(signal.SIGTERM)
                assert len(received) == 1
        assert received == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_without_a_handler_the_process_ends_after_the_step() -> None:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        with unbroken():
            send(signal.SIGTERM)
            os.write(write, b"whole")
        os.write(write, b"never")
        os._exit(0)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert os.read(read, 100) == b"whole"


@pytest.mark.parametrize("block", [unbroken, stoppable])
def test_other_threads_have_no_signals_to_delay(block: Callable[[], AbstractContextManager[None]]) -> None:
    done = []

    def work() -> None:
        with block():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
