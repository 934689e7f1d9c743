from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from efdm.errors import DamagedFileError
from efdm.training.checkpoint import is_finite, read_checkpoint, write_checkpoint


def content() -> dict[str, Any]:
    optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg_sq": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
    step = {"modules": {"a": torch.ones(64, 64)}, "optimizer": optimizer, "averaged": [torch.ones(2), torch.ones(1)]}
    place = {"phase": "style", "iteration": 7, "losses": {"loss": 0.5}, "seconds": 1.5}
    return {**place, "devices": ["cpu"], "data": "0f", "step": step}


@pytest.mark.parametrize(
    "place",
    [("modules", "a"), ("averaged", 1), ("optimizer", "state", 0, "exp_avg_sq")],
    ids=lambda place: "-".join(map(str, place)),
)
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_single_bad_number_is_found(place: tuple[Any, ...], value: float) -> None:
    assert is_finite(content())
    state = content()
    part = state["step"]
    for key in place:
        part = part[key]
    part[-1] = value
    assert not is_finite(state)


def test_a_checkpoint_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(content(), path)

    def interrupted(_: object, to: BinaryIO) -> None:
        to.write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(content(), path)
    assert read_checkpoint(path, "cpu")["iteration"] == 7
    assert list(tmp_path.iterdir()) == [path]


def test_every_damage_of_a_hundred_bytes_is_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    state = content()
    state["step"]["noise"] = torch.rand(500)
    write_checkpoint(state, path)
    whole, expected = path.read_bytes(), read_checkpoint(path, "cpu")
    refused = 0
    for at in range(0, len(whole) - 100, 97):
        path.write_bytes(whole[:at] + bytes(100) + whole[at + 100 :])
        try:
            found = read_checkpoint(path, "cpu")
        except DamagedFileError:
            refused += 1
        else:
            assert torch.equal(found["step"]["noise"], expected["step"]["noise"])
            assert torch.equal(found["step"]["modules"]["a"], torch.ones(64, 64))
    assert refused > 50


@pytest.mark.parametrize("damage", [b"", b"garbage" * 50, b"\x80\x02}q\x00.", b"PK\x03\x04" + bytes(90)])
def test_a_file_that_is_not_a_checkpoint_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(damage)
    with pytest.raises(DamagedFileError, match=r"checkpoint\.pt.*delete it"):
        read_checkpoint(path, "cpu")
