"""In vLLM's API server: the routes of limits and health, the bound of its queue, and keys from a mounted Secret."""

import asyncio
import importlib.metadata
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from paternoster_vllm.asgi import (
    RETRY_AFTER,
    App,
    Receive,
    Scope,
    Send,
    adapt_status,
    error_body,
    read_body,
    send_error,
    send_json,
)
from paternoster_vllm.continuation import StreamContinuation, is_rest_of_stream
from paternoster_vllm.core_watch import CoreWatch
from paternoster_vllm.engine_core import ROOM, SECONDS_BETWEEN, UTILITY
from paternoster_vllm.keys import has_valid_key, read_keys
from paternoster_vllm.limits import LARGEST_BODY, InvalidLimits, check_bounds, parse_limits
from paternoster_vllm.queue_limit import RequestLimit
from paternoster_vllm.text_chains import follow_texts

log = logging.getLogger(__name__)

PATH = "/paternoster/limits"
HEALTH = "/paternoster/health"
"""200 while the engine core makes progress, which vLLM's ``/health`` does not ask of it; needs no key."""
ADMIN_KEYS_ENV = "PATERNOSTER_VLLM_ADMIN_KEYS"
"""File or folder of the keys that open the route; without it no key does."""
API_KEYS_ENV = "PATERNOSTER_VLLM_API_KEYS"
"""Variable for the keys of every other path; without it vLLM's own ``--api-key`` decides."""
OPEN_PATHS = ("/health", "/ping", "/load", "/metrics", "/version")
"""What probes and Prometheus read, who send no key."""
GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
"""Paths of requests that wait in the queue whose time is bounded."""
REFUSED = "requests_refused_total"
"""Field of the report: requests that the limit of the queue's time refused."""
CALL_SECONDS = 10.0
"""Longest wait for the engine core, which answers between steps."""

CallEngine = Callable[[Scope, Mapping[str, int]], Awaitable[dict[str, Any]]]


class LimitsMiddleware:
    """An ASGI middleware: it answers the routes, and passes on what has a key, streams by way of their journal."""

    def __init__(self, app: App) -> None:
        self._app = StreamContinuation(follow_texts(app))
        self._tests: set[asyncio.Task[None]] = set()
        self._watch: CoreWatch | None = None
        self._limit = RequestLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            test = asyncio.create_task(_log_self_test(scope))
            self._tests.add(test)
            test.add_done_callback(self._tests.discard)
        elif scope["path"] == PATH and scope["type"] == "http":
            await _answer_request(scope, receive, send, self._call_engine)
            return
        elif scope["path"] == HEALTH and scope["type"] == "http":
            await self._answer_health(scope, send)
            return
        elif not _may_pass(scope):
            await _refuse_request(scope, send)
            return
        elif scope["path"] in GENERATING and scope["type"] == "http" and scope["method"] == "POST":
            await self._bound_queue(scope, receive, adapt_status(scope, send))
            return
        await self._app(scope, receive, adapt_status(scope, send))

    async def _bound_queue(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Within the limit of requests; beyond it a 503 that says when to try again."""
        if seconds := self._limit.begin_request(time.monotonic(), is_rest=is_rest_of_stream(scope)):
            text = "the request would wait for longer than max_queue_milliseconds allows: try again later"
            await send_json(send, 503, error_body(text), (RETRY_AFTER, str(seconds).encode()))
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._limit.end_request()

    async def _call_engine(self, scope: Scope, limits: Mapping[str, int]) -> dict[str, Any]:
        """The report of the engine core after ``limits`` were set, with what this process counts."""
        report = await _call_core(scope, limits)
        self._limit.update(report.pop(ROOM, None), report.pop(SECONDS_BETWEEN, 0.0), time.monotonic())
        return {**report, REFUSED: self._limit.refused}

    async def _answer_health(self, scope: Scope, send: Send) -> None:
        if self._watch is None:
            self._watch = CoreWatch(lambda: self._call_engine(scope, {}))
        fault = await self._watch.find_fault()
        await send_json(send, 503 if fault else 200, error_body(fault) if fault else {})


async def _call_core(scope: Scope, limits: Mapping[str, int]) -> dict[str, Any]:
    """Set ``limits`` in the engine core and return its report; raises ``LookupError`` where it has no such call."""
    client = getattr(scope["app"].state, "engine_client", None)
    call = getattr(getattr(client, "engine_core", None), "call_utility_async", None)
    if call is None:
        raise LookupError("the API server has no app.state.engine_client.engine_core.call_utility_async")
    try:
        report: dict[str, Any] = await call(UTILITY, dict(limits))
    except Exception as error:
        # The core answers with the text of its own AttributeError.
        if f"has no attribute '{UTILITY}'" in str(error):
            raise LookupError(f"vLLM's engine core did not load the plugin: {error}") from None
        raise
    return report


async def _answer_request(scope: Scope, receive: Receive, send: Send, call: CallEngine) -> None:
    """One request of the route: the key first, then method, body, bounds, and the call into the core."""
    if not has_valid_key(scope["headers"], read_keys(Path(os.environ.get(ADMIN_KEYS_ENV, os.devnull)))):
        await send_error(send, 401, "the Authorization header must have the fleet's admin key as Bearer token")
        return
    if scope["method"] not in ("GET", "PATCH"):
        text = f"the method is {scope['method'][:20]}: must be GET or PATCH"
        await send_json(send, 405, error_body(text), (b"allow", b"GET, PATCH"))
        return
    try:
        limits = {}
        if scope["method"] == "PATCH":
            body, _ = await read_body(receive, LARGEST_BODY)
            limits = parse_limits(body)
        report = await asyncio.wait_for(call(scope, {}), CALL_SECONDS)
        if limits and "unsupported" not in report:
            check_bounds(limits, report)
            report = await asyncio.wait_for(call(scope, limits), CALL_SECONDS)
    except InvalidLimits as error:
        await send_json(send, error.status, error_body(str(error), error.field))
    except LookupError as error:
        await send_error(send, 501, str(error))
    except TimeoutError:
        await send_error(send, 504, f"the engine core did not answer within {CALL_SECONDS:g} s")
    except Exception as error:  # the core's own fault, in its words
        log.warning("paternoster_vllm: %s", error)
        await send_error(send, 503, f"the engine core refused the call: {str(error)[:500]}")
    else:
        if "unsupported" in report:
            await send_error(send, 501, report["unsupported"])
        else:
            await send_json(send, 200, {"version": engine_version(), **report})


def engine_version() -> str:
    """vLLM's own version, such as 0.32.0+cpu; empty where its package has no metadata."""
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _may_pass(scope: Scope) -> bool:
    """Whether a request of another path has a key, where keys are wanted; preflights of browsers carry none."""
    path = os.environ.get(API_KEYS_ENV)
    if not path or scope["type"] not in ("http", "websocket"):
        return True
    if scope.get("method") == "OPTIONS" or scope["path"] in OPEN_PATHS:
        return True
    return has_valid_key(scope["headers"], read_keys(Path(path)))


async def _refuse_request(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send_error(send, 401, "the Authorization header must have a valid key as Bearer token")


async def _log_self_test(scope: Scope) -> None:
    try:
        report = await asyncio.wait_for(_call_core(scope, {}), CALL_SECONDS)
    except Exception as error:
        log.warning("paternoster_vllm: the self-test failed: %s: %s", type(error).__name__, error)
        return
    if "unsupported" in report:
        log.warning("paternoster_vllm: limits cannot be moved: %s", report["unsupported"])
    else:
        log.info("paternoster_vllm: limits can be moved below %d sequences", report["capacity"])
