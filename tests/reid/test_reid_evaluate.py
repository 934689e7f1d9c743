import pytest
import torch
import torch.nn.functional as F
from people import small_people

from efdm.errors import SettingError
from efdm.models import embedding
from efdm.models.backbones import build_backbone
from efdm.recognition.pixels import prepared
from efdm.reid.evaluate import evaluate, extract, score
from efdm.reid.protocols import Trial, make_trials
from efdm.reid.rerank import k_reciprocal
from efdm.reid.retrieval import Features, rank, rank_distances
from efdm.training.lanes import finish

SIZE = (32, 16)


def test_features_are_normalized_inputs_of_the_classifier(model: torch.nn.Module, device: torch.device) -> None:
    images = small_people().images
    found = extract(model.to(device), images, size=SIZE)
    with torch.no_grad():
        expected = F.normalize(embedding(model, prepared(images.to(device), SIZE))[0])
    assert found.device.type == device.type
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(len(images), device=device))
    model.cpu()


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_batches_do_not_change_the_features(model: torch.nn.Module, batch: int) -> None:
    images = small_people().images
    torch.testing.assert_close(extract(model, images, size=SIZE, batch=batch), extract(model, images, size=SIZE, batch=16))


def test_extraction_uses_eval_mode_and_restores_the_mode() -> None:
    model, images = build_backbone("tiny", 5), small_people().images
    expected = extract(model.eval(), images, size=SIZE)
    model.train()
    torch.testing.assert_close(extract(model, images, size=SIZE), expected)
    assert model.training


def test_bf16_features_are_close(model: torch.nn.Module) -> None:
    images = small_people().images
    half, whole = (extract(model, images, size=SIZE, precision=precision) for precision in ("bf16", "fp32"))
    assert half.dtype == torch.float32
    assert 0 < (half - whole).abs().max() < 0.05


def test_a_network_is_scored_on_the_pictures_of_the_trials(model: torch.nn.Module) -> None:
    data = small_people()
    trials = make_trials(data)
    seen = []
    handle = model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    found = finish(evaluate(model, data, trials, size=SIZE))
    handle.remove()
    assert sum(seen) == len(data.select("query")) + len(data.select("gallery"))
    features = Features(extract(model, data.images, size=SIZE), data.people, data.cameras)
    expected = rank(features.select(trials[0].query), features.select(trials[0].gallery))
    assert found.mean_ap == pytest.approx(expected.mean_ap)
    assert 0 < found.mean_ap <= 1
    torch.testing.assert_close(found.cmc, expected.cmc)


def test_scores_are_averaged_over_trials(model: torch.nn.Module) -> None:
    data = small_people()
    features = Features(torch.randn(len(data), 8), data.people, data.cameras)
    first, second = (make_trials(data, "person-camera", seed)[0] for seed in (0, 1))
    apart = [score(features, [trial]) for trial in (first, second)]
    both = score(features, [first, second])
    assert apart[0].mean_ap != apart[1].mean_ap
    assert both.mean_ap == pytest.approx((apart[0].mean_ap + apart[1].mean_ap) / 2)
    torch.testing.assert_close(both.cmc, (apart[0].cmc + apart[1].cmc) / 2)


def test_reranking_is_a_choice() -> None:
    data = small_people()
    features = Features(torch.randn(len(data), 8), data.people, data.cameras)
    trial = Trial(torch.arange(0, 48, 2), torch.arange(1, 48, 2))
    query, gallery = features.select(trial.query), features.select(trial.gallery)
    expected = rank_distances(k_reciprocal(query, gallery), query, gallery)
    found = score(features, [trial], reranking="k-reciprocal")
    assert found.mean_ap == expected.mean_ap != score(features, [trial]).mean_ap
    with pytest.raises(SettingError, match="'k' is not one of 'none', 'k-reciprocal'"):
        score(features, [trial], reranking="k")  # type: ignore[arg-type]
