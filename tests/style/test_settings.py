from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from efdm.models import NETWORKS
from efdm.style.settings import MOVABLE, SCHEDULES, Settings, check, check_same_run, read_settings
from efdm.training.files import write_json


@pytest.mark.parametrize("encoder", NETWORKS)
def test_settings_for_an_encoder_are_its_recipe(encoder: str) -> None:
    found = Settings.for_encoder(encoder, content="a", style="b")
    plain = Settings(content="a", style="b", encoder=encoder)
    assert found == dataclasses.replace(plain, **NETWORKS[encoder].recipe)
    changed = Settings.for_encoder(encoder, content="a", style="b", style_weight=3.0, lr=0.5)
    assert changed == dataclasses.replace(found, style_weight=3.0, lr=0.5)  # also where the recipe says otherwise
    check(found)


@pytest.mark.parametrize(
    ("gpu", "given", "expected"),
    [
        (False, {}, ("cpu", "fp32", "plain")),
        (True, {}, ("cuda", "bf16", "graph")),
        (True, {"device": "cpu"}, ("cpu", "fp32", "plain")),
        (False, {"device": "cuda:1", "speed": "compile"}, ("cuda:1", "bf16", "compile")),
    ],
    ids=["no_gpu", "gpu", "a_cpu_beside_a_gpu", "what_is_named_stays"],
)
def test_where_and_how_follow_the_machine(
    gpu: bool, given: dict[str, str], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    found = Settings.for_encoder("small", content="a", style="b", **given)
    assert (found.device, found.precision, found.speed) == expected


def test_an_encoder_without_a_recipe_is_told() -> None:
    with pytest.raises(ValueError, match=r"encoder='smal' is not one of .*did you mean 'small'\?"):
        Settings.for_encoder("smal", content="a", style="b")


def test_recipes_are_settings() -> None:
    known = {f.name for f in dataclasses.fields(Settings)}
    assert all(set(row.recipe) <= known for row in NETWORKS.values())


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_stay_between_nothing_and_the_rate(name: str) -> None:
    rates = [SCHEDULES[name](i, 2000) for i in range(2000)]
    assert all(0 <= r <= 1 for r in rates)
    assert rates[1500] <= rates[600]


def test_schedules_have_the_values_that_were_meant() -> None:
    # authors' code: lr / (1 + 5e-5 * iteration), so it is halved after 20000 whatever the length of the run
    assert [SCHEDULES["paper"](i, total) for i, total in ((0, 9), (20_000, 160_000), (160_000, 160_000))] == pytest.approx(
        [1.0, 0.5, 1 / 9]
    )
    assert SCHEDULES["cosine"](99, 10_000) == pytest.approx(0.2, rel=1e-3)  # 100 of 500 steps of warming up
    assert SCHEDULES["cosine"](5_000, 10_000) == pytest.approx(0.5)
    assert SCHEDULES["constant"](5_000, 10_000) == 1


def test_a_batch_that_is_all_identities_is_refused() -> None:
    small = Settings.for_encoder("small", content="a", style="b", batch=1)
    with pytest.raises(
        ValueError, match=r"in a batch of 1 every content is its own style.*raise --batch, or set --identity"
    ):
        check(small)
    check(dataclasses.replace(small, batch=2))
    check(dataclasses.replace(small, identity_weight=0.0))
    check(Settings.for_encoder("vgg16", content="a", style="b", batch=1))


# --- the same run ------------------------------------------------------------------------------------------------------


OTHER: dict[str, Any] = {str: "other", int: 77, float: 0.77}


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda f: f.name)
def test_only_files_the_device_and_the_speed_may_be_others(field: Any, tmp_path: Path) -> None:
    began = Settings(content="a", style="b")
    write_json(tmp_path / "settings.json", dataclasses.asdict(began))
    check_same_run(began, tmp_path)
    was = getattr(began, field.name)
    other = dataclasses.replace(began, **{field.name: OTHER[type(was)]})
    if field.name in MOVABLE:
        check_same_run(other, tmp_path)
        return
    with pytest.raises(ValueError, match=f"began with {field.name} {was}, not {OTHER[type(was)]}; resume it with its own"):
        check_same_run(other, tmp_path)


def test_settings_of_an_older_run_have_defaults_where_it_says_nothing(tmp_path: Path) -> None:
    began = Settings(content="a", style="b", lr=0.3)
    write_json(tmp_path / "settings.json", {k: v for k, v in dataclasses.asdict(began).items() if k != "start_iteration"})
    assert read_settings(tmp_path) == began


@pytest.mark.parametrize("text", ["{", "[1]", '{"content": "a"}', '{"content": "a", "style": "b", "colour": 1}'])
def test_what_is_not_settings_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no run to resume; leave --resume out to begin one"):
        read_settings(tmp_path)
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json does not hold the settings of a run"):
        read_settings(tmp_path)
