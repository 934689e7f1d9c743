from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sweeps import Trainer, small_set

from efdm.data.domains import DomainSet
from efdm.dg.settings import Settings
from efdm.errors import SettingError
from efdm.lab import Progress, Recipe, read_study, run, tables

SHORT = {
    "backbone": "tiny", "iterations": 10, "batch": 6, "device": "cpu", "precision": "fp32", "speed": "plain",
    "evaluate_every": 5,
}  # fmt: skip
RECIPE = Recipe(
    protocol="leave-one-out", data="noise", methods=["erm", "efdmix"], settings=SHORT, seeds=(0, 1), name="small",
    orders=(("erm", "efdmix"),),
)  # fmt: skip


def with_val(domain: str, count: int) -> DomainSet:
    """The small set with so many held-out pictures in a domain."""
    data = small_set()
    return replace(data, splits={**data.splits, domain: {**data.splits[domain], "val": data.splits[domain]["val"][:count]}})


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


def test_a_run_leaves_everything_a_table_needs(trainer: Trainer, tmp_path: Path) -> None:
    told: list[Progress] = []
    study = run(RECIPE, small_set(), tmp_path / "out", started=told.append, train=trainer)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"recipe.json", "environment.json", "records.jsonl", "done"}
    assert len(trainer.trained) == 16
    assert not study.missing
    assert study.recipe == RECIPE
    assert [p.finished for p in told] == list(range(17))
    assert {p.wanted for p in told} == {16}
    assert json.loads((tmp_path / "out" / "environment.json").read_text())[0]["pictures"]["art"]["val"] == 4
    assert tables(study)


@pytest.mark.parametrize(
    "where",
    [
        {"settings": {**SHORT, "stages": ("stage1", "stge2")}},
        {"methods": {"erm": {}, "efdmix": {"stages": ("stge2",)}}},
        {"grid": {"stages": (("stage1",), ("stge2",))}},
    ],
    ids=["all", "row", "grid"],
)
def test_a_wrong_stage_is_told_before_anything_is_trained_or_written(
    where: dict[str, Any], trainer: Trainer, tmp_path: Path
) -> None:
    random = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"has no stage 'stge2'\. Did you mean 'stage2'"):
        run(replace(RECIPE, **where), small_set(), tmp_path / "out", train=trainer)
    assert not trainer.trained
    assert not (tmp_path / "out").exists()
    assert torch.equal(torch.get_rng_state(), random)


def test_stages_are_asked_only_of_what_mixes_and_is_still_to_be_trained(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anywhere = replace(RECIPE, settings={**SHORT, "stages": ("elsewhere",)})
    assert run(anywhere, small_set(), tmp_path / "erm", methods=["erm"], train=trainer).missing == []
    run(RECIPE, small_set(), tmp_path / "all", train=trainer)
    monkeypatch.setattr(sys.modules[run.__module__], "build_backbone", lambda *_: pytest.fail("nothing is left to train"))
    assert run(RECIPE, small_set(), tmp_path / "all", train=trainer).missing == []


def test_an_interrupted_sweep_goes_on_and_repeats_nothing(trainer: Trainer, tmp_path: Path) -> None:
    trainer.left = 5
    with pytest.raises(KeyboardInterrupt):
        run(RECIPE, small_set(), tmp_path, train=trainer)
    assert not (tmp_path / "done").exists()
    assert len(read_study(tmp_path).missing) == 11
    trainer.left = 100
    run(RECIPE, small_set(), tmp_path, train=trainer)
    assert len(trainer.trained) == len(set(trainer.trained)) == 16
    assert (tmp_path / "done").exists()
    run(RECIPE, small_set(), tmp_path, train=trainer)
    assert len(trainer.trained) == 16


def test_a_training_whose_last_record_is_torn_is_done_again_and_no_other(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path, train=trainer)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    before = list(trainer.trained)
    study = run(RECIPE, small_set(), tmp_path, train=trainer)
    assert trainer.trained[16:] == [before[-1]]
    assert not study.missing
    assert [r["step"] for r in study.runs[before[-1]]] == [5, 10]


def test_shards_divide_the_runs_and_merge_into_one_study(trainer: Trainer, tmp_path: Path) -> None:
    folders = [tmp_path / str(index) for index in (1, 2, 3)]
    sizes = [
        len(run(RECIPE, small_set(), folder, shard=(index, 3), train=trainer).plan)
        for index, folder in enumerate(folders, 1)
    ]
    assert sizes == [6, 5, 5]
    assert len(set(trainer.trained)) == 16
    merged = read_study(*folders)
    assert len(merged.plan) == 16
    assert not merged.missing


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (1, 0)])
def test_a_shard_outside_its_count_is_refused(shard: tuple[int, int], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="shard") as caught:
        run(RECIPE, small_set(), tmp_path / "out", shard=shard)
    assert caught.value.settings == ("shard",)
    assert not (tmp_path / "out").exists()


def test_records_of_two_machines_are_put_behind_one_another(trainer: Trainer, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run(RECIPE, small_set(), here, seeds=[0], train=trainer)
    run(RECIPE, small_set(), there, seeds=[0, 1], train=trainer)
    both = read_study(here, there)
    assert not both.missing
    assert len(both.plan) == 16
    together = (here / "records.jsonl").read_bytes() + (there / "records.jsonl").read_bytes()
    (here / "records.jsonl").write_bytes(together)
    count = len(trainer.trained)
    study = run(RECIPE, small_set(), here, train=trainer)
    assert len(trainer.trained) == count
    assert [t.rows for t in tables(study)] == [t.rows for t in tables(both)]


def test_machines_with_other_pictures_do_not_make_one_table(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path / "here", seeds=[0], train=trainer)
    run(RECIPE, small_set(classes=3), tmp_path / "there", seeds=[1], train=trainer)
    with pytest.raises(ValueError, match="was begun with other pictures"):
        read_study(tmp_path / "here", tmp_path / "there")


@pytest.mark.parametrize("protocol", ["leave-one-out", "domainbed"])
def test_a_training_that_explodes_is_missing_named_and_tried_again(trainer: Trainer, protocol: str, tmp_path: Path) -> None:
    """With domainbed's every seed is a go of its own."""

    def one_fails(settings: list[Settings], *given: Any, **named: Any) -> None:
        good = [s for s in settings if (s.seed, s.test_domains, s.method) != (0, ("photo",), "erm")]
        trainer(good, *given, **named)
        if len(good) < len(settings):
            raise FloatingPointError("1 of 8 runs came to no end: erm")

    recipe = replace(RECIPE, protocol=protocol, selections=("last",))
    for _ in range(2):
        with pytest.raises(FloatingPointError, match=r"1 of 8 runs came to no end: erm\. Another go tries again"):
            run(recipe, small_set(), tmp_path, train=one_fails)
        study = read_study(tmp_path)
        assert [(p.row, p.seed, p.cell.test) for p in study.missing] == [("erm", 0, ("photo",))]
        assert not (tmp_path / "done").exists()
    assert len(trainer.trained) == 15
    row = next(r for r in tables(study)[0].rows if r[0] == "erm")
    assert row[tables(study)[0].head.index("photo")] == "50.0 (1 of 2)"
    assert not run(recipe, small_set(), tmp_path, train=trainer).missing


def test_records_of_another_recipe_serve_where_trainings_are_the_same(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path / "first", train=trainer)
    study_of_orders = Recipe(
        protocol="leave-one-out", data="noise", methods=["hm", "efdmix"], settings=SHORT, seeds=(0,), name="orders"
    )
    (tmp_path / "second").mkdir()
    shutil.copy(tmp_path / "first" / "records.jsonl", tmp_path / "second")
    trainer.trained.clear()
    run(study_of_orders, small_set(), tmp_path / "second", train=trainer)
    assert len(trainer.trained) == 4


def test_a_part_is_done_when_it_is_done_and_more_can_be_asked_for(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path, seeds=[0], methods=["erm"], domains=["art"], train=trainer)
    assert len(trainer.trained) == 1
    assert (tmp_path / "done").exists()
    trainer.left = 0
    with pytest.raises(KeyboardInterrupt):
        run(RECIPE, small_set(), tmp_path, seeds=[0], methods=["erm"], train=trainer)
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"iterations": 11}, "iterations 10, not 11"),
        ({"recipe": Recipe(protocol="leave-one-out", data="x", methods=["erm"], settings=SHORT, name="other")}, "'small'"),
        ({"recipe": replace(RECIPE, methods=["erm"], orders=())}, "runs of efdmix, which the recipe no longer names"),
        ({"data": small_set(("art", "photo"))}, "art, cartoon, photo, sketch, not art, photo"),
        ({"data": small_set(classes=3)}, r"other pictures \(10 of 0 in art, not 7\); give those as --data"),
        ({"data": with_val("art", 3)}, r"other splits \(4 of val in art, not 3\); give those as --data"),
    ],
    ids=["other settings", "another recipe", "a row less", "other domains", "other pictures", "another split"],
)
def test_a_folder_is_not_mixed_up(trainer: Trainer, tmp_path: Path, change: dict[str, object], words: str) -> None:
    run(RECIPE, small_set(), tmp_path, train=trainer)
    told = {"recipe": RECIPE, "data": small_set(), **change}
    with pytest.raises(ValueError, match=words):
        run(out=tmp_path, **told, train=trainer)  # type: ignore[arg-type]
    assert (tmp_path / "done").exists()  # nothing was touched


def test_a_folder_that_does_not_tell_its_splits_is_taken_as_it_is(trainer: Trainer, tmp_path: Path) -> None:
    """Those of earlier versions."""
    run(RECIPE, small_set(), tmp_path, train=trainer)
    told = json.loads((tmp_path / "recipe.json").read_text())
    del told["splits"]
    (tmp_path / "recipe.json").write_text(json.dumps(told))
    assert not run(RECIPE, with_val("art", 3), tmp_path, train=trainer).missing


def test_a_folder_of_something_else_is_left_alone(trainer: Trainer, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="not empty"):
        run(RECIPE, small_set(), tmp_path, train=trainer)
    with pytest.raises(ValueError, match="holds no runs"):
        read_study(tmp_path)


def test_the_folder_of_one_training_is_left_as_it_is(trainer: Trainer, tmp_path: Path) -> None:
    """It has records, too."""
    for name in ("settings.json", "records.jsonl", "environment.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match="is the folder of one training, not of a recipe's; choose another folder"):
        run(RECIPE, small_set(), tmp_path, train=trainer)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "settings.json": "{}", "records.jsonl": "{}", "environment.json": "{}",
    }  # fmt: skip


def test_two_goes_at_once_are_refused_and_one_after_the_other_are_not(trainer: Trainer, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")

    def second_go(*given: Any, **named: Any) -> None:
        with pytest.raises(ValueError, match="is at work in"):
            run(RECIPE, small_set(), tmp_path, seeds=[1], train=trainer)
        trainer(*given, **named)

    assert len(run(RECIPE, small_set(), tmp_path, seeds=[0], train=second_go).plan) == len(trainer.trained) == 8
    assert len(run(RECIPE, small_set(), tmp_path, train=trainer).plan) == len(trainer.trained) == 16


def test_bad_settings_are_told_before_anything_is_written(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schedule"):
        run(RECIPE, small_set(), tmp_path / "out", schedule="cosin", train=trainer)
    assert not (tmp_path / "out").exists()


def test_notes_of_all_goes_stay_under_the_table(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path, notes=["Pictures were compressed again."], train=trainer)
    study = run(RECIPE, small_set(), tmp_path, notes=["A second go."], train=trainer)
    assert study.recipe.notes == ("Pictures were compressed again.", "A second go.")
    assert "compressed again" in " ".join(tables(study)[0].caption)


def test_notes_of_several_folders_stay_under_the_table(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path / "here", seeds=[0], notes=["Of a machine here."], train=trainer)
    run(RECIPE, small_set(), tmp_path / "there", seeds=[1], notes=["Of one there."], train=trainer)
    both = read_study(tmp_path / "here", tmp_path / "there")
    assert both.recipe.notes == ("Of a machine here.", "Of one there.")


def test_folders_whose_recipes_have_other_rows_make_no_table(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path / "here", seeds=[0], train=trainer)
    run(replace(RECIPE, methods=["efdmix"], orders=()), small_set(), tmp_path / "there", seeds=[1], train=trainer)
    with pytest.raises(ValueError, match="there has a recipe that does not name erm; give folders of the same recipe"):
        read_study(tmp_path / "here", tmp_path / "there")
    assert len(read_study(tmp_path / "there", tmp_path / "here").plan) == 12


def test_domainbed_has_splits_of_its_own_for_every_seed(trainer: Trainer, tmp_path: Path) -> None:
    recipe = Recipe(
        protocol="domainbed", data="noise", methods=["erm"], seeds=(0, 1), selections=("oracle",), name="d",
        settings={"device": "cpu", "precision": "fp32", "speed": "plain"},
    )  # fmt: skip
    study = run(recipe, small_set(), tmp_path, train=trainer)
    by_seed = [trainer.sets[0].splits["sketch"]["val"], trainer.sets[-1].splits["sketch"]["val"]]
    assert not torch.equal(*by_seed)
    assert {p.settings["data"] for p in study.plan} == {"noise, 20% held out by seed"}


def test_the_oracle_asks_for_test_pictures_it_may_not_see(trainer: Trainer, tmp_path: Path) -> None:
    data = small_set()
    data.splits["art"]["test"] = data.splits["art"]["val"]
    with pytest.raises(ValueError, match="leave 'oracle' out"):
        run(RECIPE, data, tmp_path / "out", train=trainer)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"selections": ("last", "training-domain validation")}, "'training-domain validation' looks at"),
        ({"selections": ("oracle",)}, "'oracle' looks at"),
        ({"selections": ("last",), "scores": ("training-domain validation",)}, "'training-domain validation' looks at"),
    ],
    ids=["a rule", "the oracle", "a score"],
)
def test_held_out_pictures_are_asked_for_before_anything_is_trained(
    trainer: Trainer, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    data = with_val("art", 0)
    with pytest.raises(ValueError, match=f"art has no pictures for 'val', which {named}"):
        run(replace(RECIPE, **changes), data, tmp_path / "out", train=trainer)
    assert not trainer.trained
    # where nobody looks at them they may be missing
    assert not run(replace(RECIPE, selections=("last",)), data, tmp_path / "last", train=trainer).missing
    if "last" in changes["selections"]:
        run(replace(RECIPE, **changes), data, tmp_path / "art", domains=["art"], train=trainer)


def test_a_domain_smaller_than_a_batch_is_told_of_before_anything_is_trained(trainer: Trainer, tmp_path: Path) -> None:
    """To learn from, art has 16, cartoon 24, photo 8 and sketch 32."""
    recipe = replace(RECIPE, protocol="single-source", settings={**SHORT, "batch": 20})
    with pytest.raises(ValueError, match=r"erm, trained on art: 16 pictures do not fill.*; --set batch=8 fits all"):
        run(recipe, small_set(), tmp_path / "out", train=trainer)
    assert not trainer.trained
    assert not (tmp_path / "out").exists()
    assert not run(recipe, small_set(), tmp_path / "out", train=trainer, batch=8).missing  # as the sentence says


def test_rows_that_are_the_same_training_are_trained_once(trainer: Trainer, tmp_path: Path) -> None:
    recipe = replace(RECIPE, methods={"erm": {}, "again": {"method": "erm"}}, orders=(), seeds=(0,))
    study = run(recipe, small_set(), tmp_path, train=trainer)
    assert len(trainer.trained) == len(set(trainer.trained)) == 4
    first, second = tables(study)[0].rows
    assert first[1:] == second[1:]


def test_pictures_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--data"):
        run(RECIPE, None, tmp_path / "out")
