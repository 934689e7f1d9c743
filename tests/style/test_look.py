import pytest

from efdm.style.look import corner_weights


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_weights_on_the_square(count: int) -> None:
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    for i in range(count):
        weights = corner_weights(*corners[i], count=count)
        expected = [float(i == k) for k in range(count)]
        assert weights == pytest.approx(expected if count > 2 or i < 2 else weights)
    for x in (0.0, 0.3, 1.0):
        for y in (0.0, 0.6, 1.0):
            weights = corner_weights(x, y, count)
            assert sum(weights) == pytest.approx(1)
            assert min(weights) >= 0
