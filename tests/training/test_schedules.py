from __future__ import annotations

from typing import get_args

import pytest

from efdm.training.schedules import SCHEDULES, Schedule


def test_the_table_has_a_row_for_every_choice() -> None:
    assert set(SCHEDULES) == set(get_args(Schedule))


@pytest.mark.parametrize("name", SCHEDULES)
def test_factors_lie_between_0_and_1_and_decrease_after_the_warm_up(name: Schedule) -> None:
    values = [SCHEDULES[name](i, 2000) for i in range(2000)]
    assert all(0 <= value <= 1 for value in values)
    rest = values[500:] if name == "warmup-cosine" else values
    assert rest == sorted(rest, reverse=True)
    assert values[0] == (1 / 500 if name == "warmup-cosine" else 1)


def test_values_of_the_schedules() -> None:
    assert SCHEDULES["cosine"](50, 100) == pytest.approx(0.5)
    assert SCHEDULES["cosine"](99, 100) < 1e-3
    assert SCHEDULES["warmup-cosine"](99, 10_000) == pytest.approx(0.2, rel=1e-3)
    assert SCHEDULES["warmup-cosine"](5_000, 10_000) == pytest.approx(0.5)
    assert [SCHEDULES["thirds"](i, 60) for i in (0, 19, 20, 39, 40, 59)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    # halved after 20,000 iterations, regardless of the length of the run
    places = ((0, 9), (20_000, 160_000), (160_000, 160_000))
    assert [SCHEDULES["inverse-time"](i, total) for i, total in places] == pytest.approx([1.0, 0.5, 1 / 9])
    # 79 values of a cosine over 150 epochs
    assert SCHEDULES["authors"](10**6 - 1, 10**6) == pytest.approx(0.4686, abs=0.001)
    assert len({SCHEDULES["authors"](i, 5100) for i in range(5100)}) == 79
