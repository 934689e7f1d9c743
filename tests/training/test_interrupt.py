from __future__ import annotations

import os
import signal
import threading

import pytest

from efdm.training.interrupt import unbroken


def test_ctrl_c_waits_for_the_end_of_a_step() -> None:
    steps = []

    def step() -> None:
        with unbroken():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("half")
            steps.append("done")

    with pytest.raises(KeyboardInterrupt):
        step()
    assert steps == ["half", "done"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with unbroken():
        steps.append("again")


def test_training_in_a_thread_has_no_signals_to_wait_for() -> None:
    done = []

    def work() -> None:
        with unbroken():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
