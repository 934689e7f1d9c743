from __future__ import annotations

import re

import pytest
import torch

from efdm.training import PRECISIONS, SPEEDS
from efdm.training.device import SUITED, check_device, default_device, suited


@pytest.mark.parametrize(("gpu", "expected"), [(True, "cuda"), (False, "cpu")])
def test_the_default_device_is_the_gpu_if_there_is_one(gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert default_device() == expected


def test_what_suits_a_device_can_be_chosen() -> None:
    assert all(how["precision"] in PRECISIONS and how["speed"] in SPEEDS for how in SUITED.values())
    assert suited("cuda:3") == suited("cuda") != suited("cpu") == suited("mps")


@pytest.mark.parametrize(
    "name", ["cudaa", "cuda:99", "cpu:x", "meta"], ids=["typo", "no_such_gpu", "no_number", "no_values"]
)
def test_a_device_that_cannot_be_used_is_one_sentence(name: str) -> None:
    check_device("cpu")
    sentence = f'device={name!r} cannot be used here; on a CPU give device="cpu", precision="fp32", speed="plain"'
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_device(name)
