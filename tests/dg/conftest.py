import pytest
from dg_runs import small_digits

from efdm.data.domains import DomainSet


@pytest.fixture(scope="session")
def data() -> DomainSet:
    """Return 60 digits of every style. Do not modify them."""
    return small_digits(60)
