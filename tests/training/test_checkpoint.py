from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from efdm.training.checkpoint import (
    LOCK,
    alone_in,
    check_alone,
    check_finite,
    check_folder,
    restore_optimizer,
    set_rate,
    write,
)


def content() -> dict[str, Any]:
    optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg_sq": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
    return {
        "phase": "style", "iteration": 7, "network": {"a": torch.ones(2), "count": torch.tensor(2)},
        "heads": {"b": torch.ones(2)}, "step": {"optimizer": optimizer, "averaged": [torch.ones(2), torch.ones(1)]},
    }  # fmt: skip


@pytest.mark.parametrize(
    "place",
    [("network", "a"), ("heads", "b"), ("step", "averaged", 1), ("step", "optimizer", "state", 0, "exp_avg_sq")],
    ids=lambda place: "-".join(map(str, place)),
)
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_one_bad_number_anywhere_is_seen(place: tuple[Any, ...], value: float) -> None:
    check_finite(content(), "iteration 7")
    bad = content()
    part = bad
    for key in place:
        part = part[key]
    part[-1] = value  # type: ignore[index]
    with pytest.raises(
        FloatingPointError, match="no longer finite at iteration 7 of style, and were not saved; try a lower"
    ):
        check_finite(bad, "iteration 7 of style")


def test_a_checkpoint_is_kept_until_the_new_one_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    write(content(), path)

    def torn(_: object, to: BinaryIO) -> None:
        to.write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(KeyboardInterrupt):
        write(content(), path)
    assert torch.load(path, weights_only=True)["iteration"] == 7
    assert list(tmp_path.iterdir()) == [path]


def test_a_rate_that_is_a_tensor_is_changed_in_place() -> None:
    """A recorded graph reads it where it was."""
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=rate)
    set_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5
    plain = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    set_rate(plain, 0.25)
    assert plain.param_groups[0]["lr"] == 0.25


def test_what_belongs_to_a_device_is_not_taken_over() -> None:
    weights = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
    weights.sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["param_groups"][0].update(lr=torch.tensor(0.7), fused=True)
    other = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.3, momentum=0.9)
    restore_optimizer(other, state)
    assert other.param_groups[0]["lr"] == 0.3
    assert not other.param_groups[0]["fused"]
    assert torch.equal(next(iter(other.state.values()))["momentum_buffer"], torch.ones(2))


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_begins_where_there_is_none_and_goes_on_where_there_is_one(resume: bool, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "checkpoint.pt").touch()
    (tmp_path / "file").touch()
    check_folder(begun if resume else tmp_path / "new", resume=resume)
    wrong = "has no checkpoint to resume from" if resume else "has a run already; resume it"
    with pytest.raises(ValueError, match=wrong):
        check_folder(tmp_path / "new" if resume else begun, resume=resume)
    with pytest.raises(ValueError, match="is a file; choose a folder"):
        check_folder(tmp_path / "file", resume=resume)


def test_one_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    run = tmp_path / "deep" / "run"
    check_alone(run)
    assert not run.exists()
    for _ in range(2):
        with alone_in(run):
            told = f"process {os.getpid()} is at work in {run}; wait until it has ended, or choose another folder"
            for come in (lambda: alone_in(run).__enter__(), lambda: check_alone(run)):
                with pytest.raises(ValueError, match=told):
                    come()
            with alone_in(tmp_path / "other"):
                pass
        assert not list(run.iterdir())
    with pytest.raises(KeyboardInterrupt), alone_in(run):
        raise KeyboardInterrupt
    check_alone(run)


def test_a_lock_that_a_crash_left_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("1")
    with alone_in(tmp_path):
        assert (tmp_path / LOCK).read_text() == str(os.getpid())


def test_a_lock_taken_on_a_file_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before removes it when it leaves, and somebody may have opened it by then."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", lambda *_: (tmp_path / LOCK).unlink())
    with pytest.raises(ValueError, match="another process is at work"), alone_in(tmp_path):
        pytest.fail("came in")


@pytest.mark.parametrize("missing", ["system", "file system"])
def test_where_there_are_no_locks_all_may_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def refused(*_: object) -> None:
        raise OSError("no locks available")

    if missing == "system":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", refused)
    with alone_in(tmp_path), alone_in(tmp_path):
        pass
