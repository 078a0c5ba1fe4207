"""What the whole suite shares: no verdict by the clock or by the tests before, and the order of its files."""

import gc
import logging
import os
import ssl
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG, create_ssl_context
from httpx._transports import default as httpx_transports
from hypothesis import HealthCheck, is_hypothesis_test, settings


def _share_authorities(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """``create``, called once for all clients that trust the same files of authorities."""
    created: dict[tuple[object, ...], ssl.SSLContext] = {}

    def create_once(verify: object = True, cert: object = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return create(verify, cert, trust_env)
        trusted = (trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        if trusted not in created:
            created[trusted] = create(verify, cert, trust_env)
        return created[trusted]

    return create_once


# A busy machine is no fault: examples may take their time. All else is as hypothesis has it here, or in CI.
settings.register_profile(
    "suite",
    parent=settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

# A fifth of the processor time of a collection is the collector's, over modules that all stay; on again when it ends.
gc.disable()

# httpx waits 5 s for an answer unless a call says otherwise, which a busy machine exceeds; every client of the tests
# copies these defaults when it is made.
for _part in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _part, 60.0)

# A client without a context of its own reads the machine's authorities, for 27 ms; clients of the tests share one.
httpx_transports.create_ssl_context = _share_authorities(create_ssl_context)  # type: ignore[attr-defined]

FOUND_EXAMPLE = (
    "Hypothesis drew an input for which this property does not hold; it stands above, below 'Failing test case'.\n"
    "The fault is real, even if your change has nothing to do with it. Add the input to the test as @example(...),\n"
    "so that every run tries it, and mend the code; or open an issue with those lines."
)
"""Printed below a failed property, for someone who runs the suite for the first time."""


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed property what to do with the input that Hypothesis found."""
    report = yield
    if report.failed and report.when == "call" and is_hypothesis_test(getattr(item, "obj", None)):
        report.sections.append(("What to do with a found example", FOUND_EXAMPLE))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long first, so that all workers end together; within a file all stays as it is.

    Long are those with a test that asks for more time than others, then those with one marked ``slow``.
    """
    longest: dict[object, tuple[float, bool]] = defaultdict(lambda: (0.0, False))
    for item in items:
        limit = item.get_closest_marker("timeout")
        seconds = float(limit.args[0]) if limit else 0.0
        longest[item.path] = max(longest[item.path], (seconds, item.get_closest_marker("slow") is not None))
    items.sort(key=lambda item: longest[item.path], reverse=True)


def pytest_collection_finish() -> None:
    """What all files import stays to the end: the collector need not look at these objects again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def keep_root_log_level() -> Generator[None]:
    """Commands that a test runs in this process set the root logger's level, which other tests read messages by."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
