"""The record of the demo: what it claims, and that the code of today still makes it."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch

from efdm import lab
from efdm.data.digits import load_digits_domains
from efdm.dg import train
from efdm.lab.compare import difference
from efdm.lab.results import numbers

FOLDER = Path(__file__).parents[2] / "results" / "digits"
MARGIN = 2.5  # percent points, about half of what was found
# domain -> mean and deviation of its bytes, as they were trained on
DRAWN = {
    "ink": (173.579, 46.813),
    "neon": (71.35, 73.943),
    "mosaic": (97.562, 51.884),
    "outline": (130.214, 48.836),
}
# On the processor of the record the numbers come out equal. Another one rounds differently (and its name does not tell it:
# "AMD EPYC" is many), and after hundreds of steps that is like another seed. In this domain seeds differ little.
REPEATED = ("neon", 1)  # domain, seed
TOLERANCE = 6.0  # percent points


@pytest.fixture(scope="module")
def study() -> lab.Study:
    return lab.read_study(FOLDER)


def test_it_is_the_record_of_the_recipe_and_whole(study: lab.Study) -> None:
    recipe = lab.load_recipe("digits_demo")
    asked = {planned.run for planned, _ in lab.expand(recipe, study.domains, seeds=range(5))}
    assert set(study.runs) == asked == {planned.run for planned in study.plan}
    assert len(asked) == 3 * 4 * 5


def test_the_pictures_are_those_of_the_record() -> None:
    """Who draws a style anew makes the records anew."""
    pytest.importorskip("sklearn.datasets")
    data = load_digits_domains()
    for domain, expected in DRAWN.items():
        values = data.images[data.select(domain)].double()
        assert (float(values.mean()), float(values.std())) == pytest.approx(expected, abs=0.02)


def test_efdmix_beats_erm_by_a_margin(study: lab.Study) -> None:
    found = numbers(study)
    erm, efdmix = found.averages("erm"), found.averages("efdmix")
    assert list(erm) == list(efdmix) == [0, 1, 2, 3, 4]
    assert statistics.fmean(efdmix[seed] - erm[seed] for seed in erm) > MARGIN
    assert difference(found, "erm", "efdmix").verdict == "higher"  # by the averages of five seeds, at 95 %


@pytest.mark.parametrize("method", ["erm", "efdmix"])
def test_a_training_of_the_record_can_be_repeated(study: lab.Study, method: str) -> None:
    domain, seed = REPEATED
    pytest.importorskip("sklearn.datasets")
    recipe = lab.load_recipe("digits_demo")
    ((planned, settings),) = lab.expand(recipe, study.domains, seeds=[seed], methods=[method], columns=[domain])
    before = study.runs[planned.run][-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        now = train(settings, load_digits_domains(size=settings.size)).records[-1]
    finally:
        torch.set_num_threads(threads)
    (was, count), (is_, again) = before["test"][domain], now["test"][domain]
    assert count == again
    assert abs(is_ - was) / count < TOLERANCE / 100
