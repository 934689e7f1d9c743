import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from reid_runs import SIZE, seen_by_cameras, settings
from runs import Watch, lines, weights

from efdm.data.people import PersonSet
from efdm.errors import SettingError
from efdm.models.backbones import build_backbone
from efdm.recognition.settings import resolved
from efdm.reid.evaluate import evaluate
from efdm.reid.model import load_embedder
from efdm.reid.protocols import make_trials
from efdm.reid.sets import PersonSets, training_pictures
from efdm.reid.settings import METHODS, Settings
from efdm.reid.training import Trained, train, train_together
from efdm.training.lanes import finish

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture(scope="module")
def data() -> dict[str, PersonSet]:
    return {"seen": seen_by_cameras(), "other": seen_by_cameras(9, 2, name="other", seed=1)}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "changes",
    [
        {}, {"method": "efdmix"}, {"method": "mixstyle-labels"},
        {"batches": "people", "triplet_weight": 1.0, "lr": 0.03, "batch": 32},
        {"method": "efdmix-halves", "batches": "domains"}, {"optimizer": "adam", "lr": 0.01, "classifier_lr": 1.0},
    ],
    ids=["erm", "efdmix", "labels", "triplet", "halves", "adam"],
)  # fmt: skip
def test_people_are_recognized_in_new_cameras(data: dict[str, PersonSet], changes: dict[str, Any], device: str) -> None:
    """Without training, rank 1 is at most 0.1; chance is 0.05."""
    speed = "graph" if device == "cuda" else "plain"
    trained = train(settings(iterations=40, evaluate_every=0, device=device, speed=speed, **changes), data)
    assert trained.records[-1]["test"]["seen"]["rank1"] > 0.8
    torch.manual_seed(0)
    untrained = finish(evaluate(build_backbone("tiny", 2), data["seen"], make_trials(data["seen"]), size=SIZE))
    assert untrained.cmc[0] <= 0.1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(data: dict[str, PersonSet], method: str) -> None:
    batches = "domains" if "halves" in method else "uniform"
    wanted = settings(method=method, batches=batches, iterations=2, evaluate_every=0, options=_always(method), lr=0.01)
    trained, plain = train(wanted, data), train(settings(batches=batches, iterations=2, evaluate_every=0, lr=0.01), data)
    assert torch.equal(weights(trained), weights(plain)) == (method == "erm")


def _always(method: str) -> dict[str, Any]:
    return {"p": 1.0 if METHODS[method].min_batch > 1 else 0.3} if METHODS[method].options else {}


def test_the_classifier_has_its_own_learning_rate(data: dict[str, PersonSet]) -> None:
    runs = [settings(iterations=1, evaluate_every=0, classifier_lr=factor) for factor in (0.0, 1.0, 5.0)]
    still, slow, fast = (train(wanted, data).model.state_dict() for wanted in runs)
    for name in still:
        if "classifier" in name:
            torch.testing.assert_close(fast[name] - still[name], 5 * (slow[name] - still[name]), rtol=1e-3, atol=1e-6)
            assert not torch.equal(slow[name], still[name])
        else:
            assert torch.equal(fast[name], still[name])


def test_content_of_a_record(data: dict[str, PersonSet]) -> None:
    wanted = settings(method="efdmix", augmentation=("flip", "crop", "jitter", "erase"))
    trained = train(wanted, data)
    assert [(r["step"], r["last"]) for r in trained.records] == [(3, False), (6, True)]
    last = trained.records[-1]
    assert (last["people"], last["pictures"], Settings(**last["settings"])) == (20, 240, resolved(wanted))
    scores = last["test"]["seen"]
    assert (scores["protocol"], scores["trials"], scores["queries"], scores["gallery"]) == ("official", 1, 40, 40)
    found = finish(evaluate(trained.model, data["seen"], make_trials(data["seen"]), size=SIZE))
    assert scores["mAP"] == pytest.approx(found.mean_ap, rel=1e-5)
    assert [scores[f"rank{k}"] for k in (1, 5, 10)] == pytest.approx(found.cmc[[0, 4, 9]].tolist(), rel=1e-5)
    assert not trained.model.training
    assert not any(p._backward_hooks for p in trained.model.parameters())


def test_test_domains_have_their_own_protocols(data: dict[str, PersonSet]) -> None:
    """The cameras of "other" are a pair, each with two pictures of a person."""
    wanted = settings(test_domains=("seen", "other"), protocols={"other": "camera-pair"}, iterations=1)
    (record,) = train(wanted, data).records
    found = {name: (s["protocol"], s["trials"], s["queries"], s["gallery"]) for name, s in record["test"].items()}
    assert found == {"seen": ("official", 1, 40, 40), "other": ("camera-pair", 2, 9, 18)}


def test_queries_without_a_match_are_not_counted(data: dict[str, PersonSet]) -> None:
    seen = data["seen"]
    people = seen.people.clone()
    people[seen.select("query")[:3]] = 99
    sets = {**data, "seen": dataclasses.replace(seen, people=people)}
    (record,) = train(settings(iterations=1), sets).records
    assert (record["test"]["seen"]["queries"], record["test"]["seen"]["gallery"]) == (37, 40)


def test_several_training_sets_are_joined(data: dict[str, PersonSet]) -> None:
    both = settings(train_domains=("seen", "other"), iterations=1, method="efdmix-labels", domain_labels="datasets")
    (record,) = train(both, data).records
    assert (record["people"], record["pictures"]) == (29, 240 + 36)
    sets = PersonSets(data)
    pictures = training_pictures(both, sets)
    assert sorted(pictures.domains[pictures.indices].unique().tolist()) == [0, 1]
    assert sorted(pictures.people[pictures.indices].unique().tolist()) == list(range(29))
    assert pictures.images is training_pictures(both, sets).images, "runs share one copy"
    cameras = training_pictures(dataclasses.replace(both, domain_labels="cameras"), sets)
    assert len(cameras.domains[cameras.indices].unique()) == 8


def test_files_of_a_finished_run(data: dict[str, PersonSet], tmp_path: Path) -> None:
    trained = train(settings(batches="people", triplet_weight=0.5), data, tmp_path / "run")
    for line in lines(tmp_path / "run" / "log.jsonl"):
        assert line["loss"] == pytest.approx(line["softmax"] + 0.5 * line["triplet"], rel=1e-4)
    found = load_embedder(tmp_path / "run")
    assert (found.size, Settings(**found.settings)) == (SIZE, resolved(trained.settings))
    images = torch.rand(2, 3, *SIZE)
    torch.testing.assert_close(found.model(images), trained.model(images))


def test_each_of_several_runs_is_trained_once(data: dict[str, PersonSet], tmp_path: Path) -> None:
    runs = [settings(method=m, train_domains=(d,), test_domains=("seen",)) for m in ("erm", "dsu") for d in data]
    made: list[Trained] = []
    train_together(runs, data, tmp_path, lanes=3, finished=made.append)
    assert [t.settings for t in made] == [resolved(wanted) for wanted in runs]
    again, watch = list[Trained](), Watch()
    train_together(runs, data, tmp_path, progress=watch, finished=again.append)
    assert not watch.losses
    assert [t.records for t in again] == [t.records for t in made]
    assert all(torch.equal(weights(a), weights(b)) for a, b in zip(again, made, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_domains": ("sen",)}, "no data set is named 'sen', expected one of seen, other; did you mean 'seen'"),
        ({"method": "efdmix-labels", "train_domains": ("one",)}, "efdmix-labels needs at least 2 cameras, got 1"),
        ({"batches": "domains", "domains_per_batch": 8}, "at most 6, the number of cameras"),
        ({"train_domains": ("none",)}, "none has no pictures in the split 'train'"),
        ({"train_domains": ("anna",)}, "1 person in anna, expected at least 2"),
        ({"batches": "people", "instances": 2, "batch": 60}, "20 people do not fill a batch of 60"),
        ({"batch": 500}, "240 pictures do not fill one batch of 500"),
        ({"test_domains": ("none",)}, "none has no published queries"),
    ],
    ids=str,
)
def test_data_that_do_not_fit_the_settings_are_refused(
    data: dict[str, PersonSet], changes: dict[str, Any], message: str
) -> None:
    seen = data["seen"]
    one = dataclasses.replace(seen, cameras=torch.zeros_like(seen.cameras))
    none = dataclasses.replace(seen, splits={split: at[:0] for split, at in seen.splits.items()}, name="none")
    anna = dataclasses.replace(seen, people=torch.zeros_like(seen.people))
    used = {*changes.get("train_domains", ()), *changes.get("test_domains", ())}
    sets = {**data, **{name: extra for name, extra in {"one": one, "none": none, "anna": anna}.items() if name in used}}
    with pytest.raises(SettingError, match=message) as raised:
        train(settings(**changes), sets)
    names = {field.name for field in dataclasses.fields(Settings)}
    assert {*raised.value.settings} <= names  # the command names them as options


def test_sets_larger_than_the_memory_of_the_device_are_refused(
    data: dict[str, PersonSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = sum(people.images.nbytes for people in data.values())
    for free in (total - 1, total):
        monkeypatch.setattr("efdm.data.memory.available_memory", lambda device: free)
        PersonSets(data).to("cpu")  # no copy
        if free < total:
            with pytest.raises(SettingError, match="392 pictures of seen, other need"):
                PersonSets(data).to("meta")
        else:
            assert PersonSets(data).to("meta")["seen"].images.device.type == "meta"


def test_paths_are_refused() -> None:
    with pytest.raises(TypeError, match=r"'seen' is 'market1501.zip'.* read_people"):
        train(settings(), {"seen": "market1501.zip"})
