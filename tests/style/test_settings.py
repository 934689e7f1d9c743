import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from efdm.errors import DamagedFileError, RunFolderError, SettingError
from efdm.models import NETWORKS
from efdm.style.settings import Settings, check
from efdm.training.files import write_json
from efdm.training.settings import check_same_run, read_settings


@pytest.mark.parametrize("encoder", NETWORKS)
def test_settings_for_an_encoder_are_its_recipe(encoder: str) -> None:
    found = Settings.for_encoder(encoder, content="a", style="b")
    plain = Settings(content="a", style="b", encoder=encoder)
    assert found == dataclasses.replace(plain, **NETWORKS[encoder].recipe)
    changed = Settings.for_encoder(encoder, content="a", style="b", style_weight=3.0, lr=0.5)
    assert changed == dataclasses.replace(found, style_weight=3.0, lr=0.5)  # changes override the recipe
    check(found)


@pytest.mark.parametrize(
    ("gpu", "given", "expected"),
    [
        (False, {}, ("cpu", "fp32", "plain")),
        (True, {}, ("cuda", "bf16", "graph")),
        (True, {"device": "cpu"}, ("cpu", "fp32", "plain")),
        (False, {"device": "cuda:1", "speed": "compile"}, ("cuda:1", "bf16", "compile")),
    ],
    ids=["no_gpu", "gpu", "cpu_beside_a_gpu", "explicit"],
)
def test_device_precision_and_speed_default_to_the_machine(
    gpu: bool, given: dict[str, str], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    found = Settings.for_encoder("small", content="a", style="b", **given)
    assert (found.device, found.precision, found.speed) == expected


def test_identities_need_a_larger_batch() -> None:
    small = Settings.for_encoder("small", content="a", style="b", batch=1)
    with pytest.raises(SettingError, match="batch must be greater than 1 with identity_weight"):
        check(small)
    check(dataclasses.replace(small, batch=2))
    check(dataclasses.replace(small, identity_weight=0.0))
    check(Settings.for_encoder("vgg16", content="a", style="b", batch=1))


OTHER: dict[str, Any] = {str: "other", int: 77, float: 0.77}
CHOICES = {"precision": "bf16", "speed": "graph", "schedule": "constant"}


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda f: f.name)
def test_only_files_device_speed_and_intervals_may_change(field: Any, tmp_path: Path) -> None:
    began = Settings(content="a", style="b", device="cpu")
    write_json(tmp_path / "settings.json", dataclasses.asdict(began))
    check_same_run(began, tmp_path)
    was = getattr(began, field.name)
    value = CHOICES.get(field.name, OTHER[type(was)])
    other = dataclasses.replace(began, **{field.name: value})
    if field.name in (*Settings.movable, *Settings.files):
        check_same_run(other, tmp_path)
        return
    with pytest.raises(RunFolderError, match=f"{field.name}={was!r}, not {value!r}"):
        check_same_run(other, tmp_path)


def test_settings_missing_in_a_file_have_their_defaults(tmp_path: Path) -> None:
    began = Settings(content="a", style="b", lr=0.3)
    write_json(tmp_path / "settings.json", {k: v for k, v in dataclasses.asdict(began).items() if k != "start_iteration"})
    assert read_settings(Settings, tmp_path) == began


@pytest.mark.parametrize("text", ["{", "[1]", '{"content": "a"}', '{"content": "a", "style": "b", "colour": 1}'])
def test_a_damaged_settings_file_is_reported_by_name(text: str, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run to resume"):
        read_settings(Settings, tmp_path)
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"settings\.json") as caught:
        read_settings(Settings, tmp_path)
    assert ("JSON object" in str(caught.value)) == (text == "[1]")
