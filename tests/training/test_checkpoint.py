from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from efdm.training.checkpoint import check_finite, restore_optimizer, set_rate, write


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
