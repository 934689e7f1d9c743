from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from efdm.style.checkpoint import check_finite, write


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
    check_finite(content())
    bad = content()
    part = bad
    for key in place:
        part = part[key]
    part[-1] = value  # type: ignore[index]
    with pytest.raises(
        FloatingPointError, match="no longer finite at iteration 7 of style, and were not saved; try a lower"
    ):
        check_finite(bad)


def test_a_checkpoint_is_kept_until_the_new_one_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    write(content(), path)

    def torn(_: object, to: Path) -> None:
        Path(to).write_bytes(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(KeyboardInterrupt):
        write(content(), path)
    assert torch.load(path, weights_only=True)["iteration"] == 7
