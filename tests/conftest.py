"""Settings every test shares."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile("default")

WORKLOADS = Path(__file__).resolve().parents[2] / "shared" / "workloads"


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The folder of published workloads; tests that need it are skipped where it is absent."""
    if not WORKLOADS.is_dir():
        pytest.skip("the published workloads are not beside this checkout")
    return WORKLOADS
