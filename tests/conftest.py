"""What the whole suite shares: no verdict by the clock or by the tests before, and the order of its files."""

import gc
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault: examples may take their time. All else is as hypothesis has it here, or in CI.
settings.register_profile(
    "suite",
    parent=settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What torch draws and in how many threads it computes are a test's own, whichever tests came before it.

    An engine that a test builds computes in as many threads as there are processors, and so did all tests after it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return (yield)
    threads = torch.get_num_threads()
    torch.default_generator.manual_seed(zlib.crc32(item.nodeid.encode()))
    try:
        return (yield)
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long first, so that all workers end together; within a file all stays as it is.

    Long are those with a test that asks for more time than others, then those with one marked ``slow``.
    """
    longest: dict[object, tuple[float, bool]] = defaultdict(lambda: (0.0, False))
    for item in items:
        limit = item.get_closest_marker("timeout")
        asked = float(limit.args[0]) if limit else 0.0
        longest[item.path] = max(longest[item.path], (asked, item.get_closest_marker("slow") is not None))
    items.sort(key=lambda item: longest[item.path], reverse=True)


def pytest_collection_finish() -> None:
    """What all files import stays to the end: the collector need not look at these objects again and again."""
    gc.freeze()
