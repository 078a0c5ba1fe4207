"""What passes the gateway: headers of requests to engines, and of their answers to clients.

An engine that was taken over must not speak to browsers and proxies as the gateway, so both are lists of what passes.
"""

import re
from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]
"""As ASGI has them: names in small letters, one may come several times."""

PASSED_ON = frozenset({"accept", "accept-encoding", "content-type", "traceparent", "tracestate", "user-agent"})
"""Headers of a request that engines get, besides its id: none that says who the client is, such as its key, a cookie,
or what a proxy before the gateway adds for whoever comes next."""
OF_ENGINES = frozenset(
    {b"cache-control", b"content-encoding", b"content-type", b"request-id", b"retry-after", b"x-request-id",
     b"x-should-retry"}
)  # fmt: skip
"""Headers of an answer that clients get. None of one connection, of a server, of browsers, of redirects or of
proxies."""
OF_ENGINES_BEGIN = (b"anthropic-ratelimit-", b"openai-", b"x-paternoster-", b"x-ratelimit-")
"""How the names of others begin."""
MEDIA_TYPES = frozenset(
    {b"application/json", b"application/problem+json", b"application/x-ndjson", b"text/event-stream", b"text/plain"}
)
"""Of answers; others, such as pages, become :data:`OPAQUE`."""
OPAQUE = b"application/octet-stream"
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_PRINTABLE = re.compile(rb"[\t\x20-\x7e]*")


def is_status_of_engine(status: int) -> bool:
    """Whether an engine may answer so: no redirect, no answer without a body, no number beyond HTTP's."""
    return status in (200, 201, 202) or 400 <= status <= 599


def answer_headers(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Those of an engine's answer that are the client's, in their order, with a media type that no browser renders."""
    headers = [(name.lower(), value) for name, value in raw]
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    passed = [
        (name, value)
        for name, value in headers
        if (name in OF_ENGINES or name.startswith(OF_ENGINES_BEGIN))
        and name not in named  # of one connection (RFC 9110, 7.6.1)
        and _PRINTABLE.fullmatch(value)
    ]
    types = [value for name, value in passed if name == b"content-type"]
    known = len(types) == 1 and types[0].partition(b";")[0].strip().lower() in MEDIA_TYPES
    if not known:
        passed = [*(each for each in passed if each[0] != b"content-type"), (b"content-type", OPAQUE)]
    return [*passed, NO_SNIFFING]
