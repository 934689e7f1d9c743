from __future__ import annotations

import pytest
import torch

from efdm.errors import SettingError
from efdm.training import PRECISIONS, SPEEDS, autocast, weights_dtype
from efdm.training.device import DEFAULTS, check_device, default_device, device_defaults


@pytest.mark.parametrize(("gpu", "expected"), [(True, "cuda"), (False, "cpu")])
def test_the_default_device_is_the_gpu_if_there_is_one(gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert default_device() == expected


def test_defaults_of_devices_are_valid_choices() -> None:
    assert all(how["precision"] in PRECISIONS and how["speed"] in SPEEDS for how in DEFAULTS.values())
    assert device_defaults("cuda:3") == device_defaults("cuda") != device_defaults("cpu") == device_defaults("mps")


@pytest.mark.parametrize(
    "name", ["cudaa", "cuda:99", "cpu:x", "meta"], ids=["typo", "no_such_gpu", "no_number", "no_values"]
)
def test_an_unavailable_device_is_refused(name: str) -> None:
    assert check_device("cpu") == torch.device("cpu")
    with pytest.raises(SettingError, match=f"device='{name}'.*device='cpu'"):
        check_device(name)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_layers_compute_in_the_precision(precision: str) -> None:
    dtype = weights_dtype(precision)
    layer = torch.nn.Linear(3, 2, dtype=dtype)
    with autocast(torch.device("cpu"), precision):
        assert layer(torch.ones(1, 3, dtype=dtype)).dtype == PRECISIONS[precision]
        assert not torch.is_autocast_cache_enabled()
    assert (dtype == torch.float64) == (precision == "fp64")
