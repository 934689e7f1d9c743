from __future__ import annotations

from collections import deque

import pytest
import torch

from efdm.training import lanes
from efdm.training.lanes import Work, finish, side_by_side

CPU = torch.device("cpu")


class Diary:
    """Generators that record their steps."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def work(self, name: str, steps: int, *, fails_at: int = -1) -> Work[str]:
        try:
            for i in range(steps):
                if i == fails_at:
                    raise FloatingPointError(name)
                self.lines.append(f"{name}{i}")
                yield
        except GeneratorExit:
            self.lines.append(f"{name} saved")
            raise
        return name.upper()


def test_lanes_alternate_and_finished_work_is_replaced() -> None:
    diary, made = Diary(), []
    works = [diary.work("a", 1), diary.work("b", 3), diary.work("c", 2)]
    side_by_side(works, device=CPU, lanes=2, finished=made.append)
    assert made == ["A", "C", "B"] or made == ["A", "B", "C"]
    assert diary.lines == ["a0", "b0", "b1", "c0", "b2", "c1"]


def test_waiting_work_starts_when_a_lane_is_free() -> None:
    started: list[str] = []

    def works() -> object:
        for name in "abc":
            started.append(name)
            yield Diary().work(name, 2)

    seen = []
    side_by_side(works(), device=CPU, lanes=1, finished=lambda _: seen.append(list(started)))  # type: ignore[arg-type]
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize("where", ["work", "callback"])
def test_when_one_fails_the_others_are_saved(where: str) -> None:
    diary = Diary()
    works = [diary.work("a", 9), diary.work("b", 2, fails_at=1 if where == "work" else -1), diary.work("c", 9)]

    def finished(value: str) -> None:
        raise FloatingPointError(value)

    with pytest.raises(FloatingPointError):
        side_by_side(works, device=CPU, lanes=3, finished=finished)
    assert sorted(line for line in diary.lines if "saved" in line) == ["a saved", "c saved"]


def test_a_failed_save_does_not_prevent_the_others() -> None:
    diary = Diary()

    def stubborn() -> Work[str]:
        try:
            yield
            yield
        except GeneratorExit:
            raise OSError("disk full") from None
        return ""

    with pytest.raises(OSError, match="disk full"):
        side_by_side(
            [diary.work("a", 9), stubborn(), diary.work("b", 9), diary.work("c", 9, fails_at=1)],
            device=CPU, lanes=4, finished=print,
        )  # fmt: skip
    assert sorted(line for line in diary.lines if "saved" in line) == ["a saved", "b saved"]


def test_finish_runs_to_the_end() -> None:
    diary = Diary()
    assert finish(diary.work("a", 3)) == "A"
    assert diary.lines == ["a0", "a1", "a2"]


class Device:
    """Simulate a GPU on which steps take different times; time passes when the host sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.current = 0.0, None
        self.busy_until: dict[object, float] = {}
        device = self

        class Event:
            def record(self) -> None:
                self.at = device.busy_until.get(device.current, 0.0)

            def query(self) -> bool:
                return self.at <= device.now

        class Stream:
            def __init__(self, _: torch.device) -> None: ...
            def synchronize(self) -> None:
                device.now = max(device.now, device.busy_until.get(self, 0.0))

        class On:
            def __init__(self, stream: object) -> None:
                self.stream = stream

            def __enter__(self) -> None:
                device.current = self.stream

            def __exit__(self, *_: object) -> None:
                device.current = None

        for name, value in {"Event": Event, "Stream": Stream, "stream": On}.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(lanes.time, "sleep", self.sleep)

    def sleep(self, _: float) -> None:
        self.now += 0.25

    def work(self, name: str, steps: int, takes: float, log: list[str]) -> Work[str]:
        for _ in range(steps):
            start = max(self.now, self.busy_until.get(self.current, 0.0))
            self.busy_until[self.current] = start + takes
            log.append(name)
            yield
        return name


def test_the_queue_of_a_lane_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "AHEAD", 4)
    device, log = Device(monkeypatch), []
    most = 0

    def watched() -> Work[str]:
        nonlocal most
        inner = device.work("a", 20, 1.0, log)
        for _ in inner:
            most = max(most, int(device.busy_until[device.current] - device.now))
            yield
        return "a"

    side_by_side([watched()], device=torch.device("cuda"), lanes=1, finished=lambda _: None)
    assert most == 4


def test_fast_lanes_do_not_wait_for_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "AHEAD", 4)
    device, log = Device(monkeypatch), deque()
    works = [device.work("slow", 10, 5.0, log), device.work("fast", 40, 1.0, log)]  # type: ignore[arg-type]
    side_by_side(works, device=torch.device("cuda"), lanes=2, finished=lambda _: None)
    assert device.now == pytest.approx(50, abs=6)  # concurrently: neither 90 nor 40 x 5
    assert list(log)[:16].count("fast") > list(log)[:16].count("slow")


def test_a_lane_that_waits_does_not_empty_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "AHEAD", 4)
    device, queued = Device(monkeypatch), []

    def reading() -> Work[str]:
        yield from device.work("a", 4, 1.0, [])
        yield lanes.WAIT
        queued.append([device.busy_until[stream] - device.now for stream in device.busy_until])
        return "a"

    works = [reading(), device.work("b", 30, 1.0, [])]
    side_by_side(works, device=torch.device("cuda"), lanes=2, finished=lambda _: None)
    ((mine, other),) = queued
    assert mine <= 0
    assert other >= 3


def test_a_run_starts_while_the_others_have_full_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "AHEAD", 4)
    device, queued = Device(monkeypatch), []

    def starting(name: str) -> Work[str]:
        queued.append([busy - device.now for busy in device.busy_until.values()])
        device.now += 2  # set-up
        return (yield from device.work(name, 30, 1.0, []))

    side_by_side(map(starting, "ab"), device=torch.device("cuda"), lanes=2, finished=lambda _: None)
    assert queued[0] == []
    assert queued[1][0] >= 3
