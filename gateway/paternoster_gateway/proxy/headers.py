"""The headers that pass the gateway: of requests to engines, and of their answers to clients.

Both are lists of what passes: a compromised engine must not address browsers and proxies in the gateway's name.
"""

import re
from collections.abc import Mapping, Sequence

from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS
from paternoster_contract.request_phases import PHASES
from paternoster_contract.stream_journal import JOURNAL
from paternoster_gateway.call.attempt import Headers
from paternoster_gateway.routing.prefix_routing import PromptTokens

FORWARDED_HEADERS = frozenset({"accept", "accept-encoding", "content-type", "traceparent", "tracestate", "user-agent"})
"""Headers of a request that engines get, besides its id: none that identifies the client, such as its key, a cookie, or
what a proxy before the gateway adds for the next hop."""
ANSWER_HEADERS = frozenset(
    {b"cache-control", b"content-encoding", b"content-type", b"request-id", b"retry-after", b"x-request-id",
     b"x-should-retry"}
)  # fmt: skip
"""Headers of an answer that clients get: none of one connection, a server, browsers, redirects or proxies."""
ANSWER_HEADER_PREFIXES = (b"anthropic-ratelimit-", b"openai-", b"x-paternoster-", b"x-ratelimit-")
"""Prefixes of the names of further ones."""
MEDIA_TYPES = frozenset(
    {b"application/json", b"application/problem+json", b"application/x-ndjson", b"text/event-stream", b"text/plain"}
)
"""Media types of answers; others, such as pages, become :data:`OPAQUE`."""
OPAQUE = b"application/octet-stream"
EVENT_STREAM = "text/event-stream"
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NOT_PASSED = frozenset({JOURNAL.lower().encode(), PHASES.lower().encode()})
_COUNT = re.compile(r"[0-9]{1,9}")
_PRINTABLE = re.compile(rb"[\t\x20-\x7e]*")


def prompt_tokens_of(headers: Mapping[str, str]) -> PromptTokens | None:
    """What an engine's answer states of its prompt; None where it states nothing that could be."""
    values = headers.get(PROMPT_TOKENS, ""), headers.get(CACHED_TOKENS, "")
    if not all(_COUNT.fullmatch(value) for value in values):
        return None
    prompt, cached = map(int, values)
    return PromptTokens(prompt, cached) if cached <= prompt else None


def media_type_of(headers: Mapping[str, str]) -> str:
    """Media type of an engine's answer, in lower case and without parameters; empty where it states none."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def is_status_of_engine(status: int) -> bool:
    """Whether an engine may answer with ``status``: no redirect, no answer without a body, no number beyond HTTP's."""
    return status in (200, 201, 202) or 400 <= status <= 599


def answer_headers(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Headers of an engine's answer that clients get, in their order, with a media type that no browser renders."""
    headers = [(name.lower(), value) for name, value in raw]
    hop_by_hop = {
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    passed = [
        (name, value)
        for name, value in headers
        if (name in ANSWER_HEADERS or name.startswith(ANSWER_HEADER_PREFIXES))
        and name not in _NOT_PASSED
        and name not in hop_by_hop  # RFC 9110, 7.6.1
        and _PRINTABLE.fullmatch(value)
    ]
    types = [value for name, value in passed if name == b"content-type"]
    has_media_type = len(types) == 1 and types[0].partition(b";")[0].strip().lower() in MEDIA_TYPES
    if not has_media_type:
        passed = [*(each for each in passed if each[0] != b"content-type"), (b"content-type", OPAQUE)]
    return [*passed, NO_SNIFFING]
