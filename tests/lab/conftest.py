import pytest

from efdm.data.digits import load_digits_domains
from efdm.data.domains import DomainSet


@pytest.fixture(scope="session")
def data() -> DomainSet:
    """Return 20 digits of every style. Do not modify them."""
    return load_digits_domains(per_domain=20)
