"""Settings every test shares."""

import gc
import math
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.long_files import LONG_FILES

settings.register_profile(
    "default",
    max_examples=25,
    derandomize=True,  # the same examples everywhere; "thorough" draws new ones
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough", parent=settings.get_profile("default"), max_examples=2000, derandomize=False
)
settings.load_profile("default")

os.environ["PLACEWRIGHT_PROFILES"] = os.devnull + ".none"  # nobody's measurements change a test
os.environ["PLACEWRIGHT_IMPORTS"] = "off"  # nor does what was imported before

# A shell that starts the suite in the background has it ignore Ctrl-C, and what it starts too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores: many tests wait for the processes they start."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist does as it says
    return (os.cpu_count() or 1) + 1


WHOLE = "PLACEWRIGHT_WHOLE_SUITE"
"""Set in the environment, and so for xdist's workers, where neither paths nor ``-k`` are given."""
TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    by_default = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if by_default and not config.option.keyword:
        os.environ[WHOLE] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests of `LONG_FILES`; of the whole suite, and without ``-m``, they are left out."""
    long = [each for each in items if each.path.relative_to(TESTS).as_posix() in LONG_FILES]
    for each in long:
        each.add_marker("long")
    if WHOLE in os.environ and config.option.markexpr == "not slow":
        config.hook.pytest_deselected(items=long)
        left_out = set(long)
        items[:] = [each for each in items if each not in left_out]


UNTIL = "PLACEWRIGHT_TESTS_UNTIL"
"""In the environment: seconds since 1970 after which no test begins; those left are skipped."""


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("no time left on this machine")


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def everything_compiled() -> None:
    """A run waits until all its members are compiled: whoever is not would sit out."""
    from placewright.portfolio import run

    run.COMPILING_SECONDS = math.inf


WORKLOADS = Path(__file__).resolve().parents[2] / "shared" / "workloads"


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The folder of published workloads; tests that need it are skipped where it is absent."""
    if not WORKLOADS.is_dir():
        pytest.skip("the published workloads are not beside this checkout")
    return WORKLOADS
