import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sweeps
import torch
from sweeps import Trainer, small_set

from efdm.data.domains import DomainSet
from efdm.dg.settings import Settings
from efdm.errors import DamagedFileError, DivergedError, RunFolderError, SettingError
from efdm.lab import load_recipe, read_study, run, tables
from efdm.models.backbones import ORIGINS
from efdm.progress import Progress

SHORT = {**sweeps.SHORT, "iterations": 10, "batch": 6, "evaluate_every": 5}
RECIPE = sweeps.small(settings=SHORT, seeds=(0, 1), orders=(("erm", "efdmix"),))


def with_val(domain: str, count: int) -> DomainSet:
    """Return the small set with ``count`` held-out pictures in a domain."""
    data = small_set()
    return replace(data, splits={**data.splits, domain: {**data.splits[domain], "val": data.splits[domain]["val"][:count]}})


def renamed() -> DomainSet:
    """Return the small set with equal counts and other names."""
    data = small_set()
    return replace(data, names=[name.replace(".png", ".jpg") for name in data.names])


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """Train nothing; return what records the runs."""
    made = Trainer()
    monkeypatch.setattr("efdm.lab.sweep.train_runs", made)
    return made


def test_files_of_a_sweep(trainer: Trainer, tmp_path: Path) -> None:
    reports: list[Progress] = []
    study = run(RECIPE, small_set(), tmp_path / "out", progress=reports.append)
    visible = {p.name for p in (tmp_path / "out").iterdir() if not p.name.startswith(".")}
    assert visible == {"recipe.json", "environment.json", "records.jsonl", "done"}
    assert len(trainer.trained) == 16
    assert not study.missing
    assert study.recipe == RECIPE
    assert reports == [Progress("runs", done, 16) for done in range(17)]
    assert json.loads((tmp_path / "out" / "environment.json").read_text())[0]["pictures"]["art"]["val"] == 4
    assert tables(study)


def test_a_wrong_stage_is_refused_before_the_first_run(trainer: Trainer, tmp_path: Path) -> None:
    recipe = replace(RECIPE, grid={"stages": (("stage1",), ("stge2",))})
    random = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"has no stage 'stge2'\. Did you mean 'stage2'"):
        run(recipe, small_set(), tmp_path / "out")
    assert not trainer.trained
    assert not (tmp_path / "out").exists()
    assert torch.equal(torch.get_rng_state(), random)


def test_stages_are_checked_only_where_they_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anywhere = replace(RECIPE, settings={**SHORT, "stages": ("elsewhere",)})
    assert run(anywhere, small_set(), tmp_path / "erm", methods=["erm"]).missing == []
    run(RECIPE, small_set(), tmp_path / "all")
    monkeypatch.setattr("efdm.lab.sweep.build_backbone", lambda *_: pytest.fail("nothing is left to train"))
    assert run(RECIPE, small_set(), tmp_path / "all").missing == []


def test_an_interrupted_sweep_continues(trainer: Trainer, tmp_path: Path) -> None:
    trainer.left = 5
    with pytest.raises(KeyboardInterrupt):
        run(RECIPE, small_set(), tmp_path)
    assert not (tmp_path / "done").exists()
    assert len(read_study(tmp_path).missing) == 11
    trainer.left = 100
    run(RECIPE, small_set(), tmp_path)
    assert len(trainer.trained) == len(set(trainer.trained)) == 16
    assert (tmp_path / "done").exists()
    run(RECIPE, small_set(), tmp_path)
    assert len(trainer.trained) == 16


def test_a_run_with_an_incomplete_record_is_repeated(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    before = list(trainer.trained)
    study = run(RECIPE, small_set(), tmp_path)
    assert trainer.trained[16:] == [before[-1]]
    assert not study.missing
    assert [r["step"] for r in study.runs[before[-1]]] == [5, 10]


def test_shards_divide_the_runs_and_merge_into_one_study(trainer: Trainer, tmp_path: Path) -> None:
    folders = [tmp_path / str(index) for index in (1, 2, 3)]
    shards = [run(RECIPE, small_set(), folder, shard=(i, 3)) for i, folder in enumerate(folders, 1)]
    assert [len(shard.plan) for shard in shards] == [6, 5, 5]
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


def test_records_of_two_machines_are_merged(trainer: Trainer, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run(RECIPE, small_set(), here, seeds=[0])
    run(RECIPE, small_set(), str(there), seeds=[0, 1])
    both = read_study(here, str(there))
    assert not both.missing
    assert len(both.plan) == 16
    together = (here / "records.jsonl").read_bytes() + (there / "records.jsonl").read_bytes()
    (here / "records.jsonl").write_bytes(together)
    count = len(trainer.trained)
    study = run(RECIPE, small_set(), here)
    assert len(trainer.trained) == count
    assert [t.rows for t in tables(study)] == [t.rows for t in tables(both)]


@pytest.mark.parametrize("protocol", ["leave-one-out", "domainbed"])
def test_a_diverged_run_is_named_and_repeated(
    trainer: Trainer, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DomainBed's protocol trains seed by seed."""

    def one_fails(task: Any, settings: list[Settings], *given: Any, **named: Any) -> None:
        good = [s for s in settings if (s.seed, s.test_domains, s.method) != (0, ("photo",), "erm")]
        trainer(task, good, *given, **named)
        if len(good) < len(settings):
            raise DivergedError("1 of 8 runs diverged: erm", 3)

    recipe = replace(RECIPE, protocol=protocol, selections=("last",))
    monkeypatch.setattr("efdm.lab.sweep.train_runs", one_fails)
    for _ in range(2):
        with pytest.raises(DivergedError, match=r"1 of 8 runs diverged: erm\. Run the recipe again"):
            run(recipe, small_set(), tmp_path)
        study = read_study(tmp_path)
        assert [(p.row, p.seed, p.cell.test) for p in study.missing] == [("erm", 0, ("photo",))]
        assert not (tmp_path / "done").exists()
    assert len(trainer.trained) == 15
    row = next(r for r in tables(study)[0].rows if r[0] == "erm")
    assert row[tables(study)[0].head.index("photo")] == "50.0 (1 of 2)"
    monkeypatch.setattr("efdm.lab.sweep.train_runs", trainer)
    assert not run(recipe, small_set(), tmp_path).missing


def test_records_of_equal_runs_are_reused(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path / "first")
    study_of_orders = replace(RECIPE, methods=["hm", "efdmix"], orders=(), seeds=(0,), name="orders")
    trainer.trained.clear()
    study = run(study_of_orders, small_set(), tmp_path / "second", reuse=[tmp_path / "first"])
    assert len(trainer.trained) == 4
    assert len(study.runs) == 8
    with pytest.raises(RunFolderError, match="other data"):
        run(study_of_orders, renamed(), tmp_path / "third", reuse=[tmp_path / "first"])


def test_a_subset_can_be_extended(trainer: Trainer, tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path, seeds=[0], methods=["erm"], domains=["art"])
    assert len(trainer.trained) == 1
    assert (tmp_path / "done").exists()
    trainer.left = 0
    with pytest.raises(KeyboardInterrupt):
        run(RECIPE, small_set(), tmp_path, seeds=[0], methods=["erm"])
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"iterations": 11}, "iterations 10, not 11"),
        ({"recipe": replace(RECIPE, name="other")}, "'small'"),
        ({"recipe": replace(RECIPE, methods=["erm"], orders=())}, "a recipe without efdmix"),
        ({"data": small_set(("art", "photo"))}, "art, cartoon, photo, sketch and art, photo"),
        ({"data": small_set(classes=3)}, "numbers of pictures differ"),
        ({"data": renamed()}, "names, labels or sizes differ"),
        ({"data": with_val("art", 3)}, "sizes of splits differ"),
    ],
    ids=["settings", "recipe", "rows", "domains", "pictures", "names", "splits"],
)
def test_a_folder_holds_one_sweep(tmp_path: Path, change: dict[str, object], words: str) -> None:
    run(RECIPE, small_set(), tmp_path)
    arguments = {"recipe": RECIPE, "data": small_set(), **change}
    with pytest.raises(ValueError, match=words):
        run(out=tmp_path, **arguments)  # type: ignore[arg-type]
    assert (tmp_path / "done").exists()  # nothing was changed


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-100], lambda text: "", lambda text: text.replace('"hparams"', '"x"')],
    ids=["cut off", "empty", "missing key"],
)  # fmt: skip
def test_a_damaged_recipe_is_named(damage: Callable[[str], str], tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path)
    path = tmp_path / "recipe.json"
    path.write_text(damage(path.read_text()))
    for action in (lambda: read_study(tmp_path), lambda: run(RECIPE, small_set(), tmp_path)):
        with pytest.raises(DamagedFileError, match=r"recipe\.json") as error:
            action()
        assert error.value.path == path


def test_a_folder_of_sweeps_names_them(tmp_path: Path) -> None:
    for name in ("ties", "grid"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.json").write_text("{}")
    with pytest.raises(ValueError, match="grid, ties"):
        read_study(tmp_path)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="not empty"):
        run(RECIPE, small_set(), tmp_path)
    with pytest.raises(ValueError, match="holds no runs of a recipe"):
        read_study(tmp_path)
    with pytest.raises(ValueError, match="nowhere does not exist"):
        read_study(tmp_path / "nowhere")
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match="holds a single run"):
        run(RECIPE, small_set(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "settings.json"}


def test_a_second_process_is_refused(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_call(*given: Any, **named: Any) -> None:
        with pytest.raises(ValueError, match="another process"):
            run(RECIPE, small_set(), tmp_path, seeds=[1])
        trainer(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr("efdm.lab.sweep.train_runs", second_call)
        assert len(run(RECIPE, small_set(), tmp_path, seeds=[0]).plan) == len(trainer.trained) == 8
    assert len(run(RECIPE, small_set(), tmp_path).plan) == len(trainer.trained) == 16


def test_notes_of_all_calls_and_folders_are_kept(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run(RECIPE, small_set(), here, seeds=[0], notes=["Compressed again."])
    study = run(RECIPE, small_set(), here, seeds=[0], notes=["A second call."])
    assert study.recipe.notes == ("Compressed again.", "A second call.")
    assert "Compressed again." in " ".join(tables(study)[0].caption)
    run(RECIPE, small_set(), there, seeds=[1], notes=["Another machine."])
    assert read_study(here, there).recipe.notes == ("Compressed again.", "A second call.", "Another machine.")


@pytest.mark.parametrize("weights", ["resnet18.timm.fp16.safetensors", "random"])
def test_the_origin_of_the_weights_is_noted(weights: str, tmp_path: Path) -> None:
    path = tmp_path / weights
    path.touch()
    given = "random" if weights == "random" else str(path)
    study = run(replace(RECIPE, notes=("First.",)), small_set(), tmp_path / "out", weights=given)
    assert study.recipe.notes == (*([ORIGINS[weights]] if weights in ORIGINS else []), "First.")
    assert all(origin not in load_recipe("pacs_leave_one_out_resnet18").notes for origin in ORIGINS.values())


def test_folders_with_other_rows_or_pictures_are_not_merged(tmp_path: Path) -> None:
    run(RECIPE, small_set(), tmp_path / "here", seeds=[0])
    run(replace(RECIPE, methods=["efdmix"], orders=()), small_set(), tmp_path / "there", seeds=[1])
    with pytest.raises(ValueError, match=r"there .* a recipe without erm"):
        read_study(tmp_path / "here", tmp_path / "there")
    assert len(read_study(tmp_path / "there", tmp_path / "here").plan) == 12
    run(RECIPE, small_set(classes=3), tmp_path / "other", seeds=[1])
    with pytest.raises(ValueError, match="started with other data"):
        read_study(tmp_path / "here", tmp_path / "other")


def test_domainbed_splits_depend_on_the_seed(trainer: Trainer, tmp_path: Path) -> None:
    study = run(replace(RECIPE, protocol="domainbed", selections=("oracle",)), small_set(), tmp_path)
    assert not torch.equal(*(trainer.sets[at].splits["sketch"]["val"] for at in (0, -1)))
    assert {p.settings["data"] for p in study.plan} == {"noise, 20% held out by seed"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"selections": ("last", "training-domain validation")}, "'training-domain validation' needs"),
        ({"selections": ("oracle",)}, "'oracle' needs"),
        ({"selections": ("last",), "scores": ("training-domain validation",)}, "'training-domain validation' needs"),
    ],
    ids=["a rule", "the oracle", "a score"],
)
def test_held_out_pictures_are_checked_before_the_first_run(
    trainer: Trainer, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    data = with_val("art", 0)
    with pytest.raises(ValueError, match=f"art has no pictures in the split 'val', which {named}"):
        run(replace(RECIPE, **changes), data, tmp_path / "out")
    assert not trainer.trained
    assert not run(replace(RECIPE, selections=("last",)), data, tmp_path / "last").missing
    if "last" in changes["selections"]:
        run(replace(RECIPE, **changes), data, tmp_path / "art", domains=["art"])


def test_a_batch_must_fit_every_domain(trainer: Trainer, tmp_path: Path) -> None:
    """The training splits have 16, 24, 8 and 32 pictures."""
    recipe = replace(RECIPE, protocol="single-source", settings={**SHORT, "batch": 20})
    with pytest.raises(ValueError, match=r"erm, trained on art, .*: 16 pictures do not fill"):
        run(recipe, small_set(), tmp_path / "out")
    assert not trainer.trained
    assert not (tmp_path / "out").exists()
    assert not run(recipe, small_set(), tmp_path / "out", batch=8).missing


def test_one_class_is_refused(tmp_path: Path) -> None:
    one = replace(small_set(), labels=torch.zeros(len(small_set()), dtype=torch.int64), classes=["dog"])
    with pytest.raises(SettingError, match=r"1 class \(dog\), expected at least 2"):
        run(RECIPE, one, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_equal_rows_are_trained_once(trainer: Trainer, tmp_path: Path) -> None:
    recipe = replace(RECIPE, methods={"erm": {}, "again": {"method": "erm"}}, orders=(), seeds=(0,))
    study = run(recipe, small_set(), tmp_path)
    assert len(trainer.trained) == len(set(trainer.trained)) == 4
    first, second = tables(study)[0].rows
    assert first[1:] == second[1:]


def test_missing_pictures(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="noise") as error:
        run(RECIPE, None, tmp_path / "out")
    assert error.value.settings == ("data",)
