"""Which headers pass the gateway: of requests to engines, and of their answers to clients."""

from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]
"""As ASGI has them: names in small letters, one may come several times."""

PASSED_ON = frozenset({"accept", "accept-encoding", "content-type", "traceparent", "tracestate", "user-agent"})
"""Headers of a request that engines get, besides its id: none that says who the client is, such as its key, a cookie,
or what a proxy before the gateway adds for whoever comes next."""
HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
     b"transfer-encoding", b"upgrade", b"content-length"}
)  # fmt: skip
"""Headers of an answer that are of one connection and not of the message (RFC 9110, 7.6.1)."""
OF_THE_SERVER = frozenset({b"date", b"server"})
"""Headers of an answer that the gateway's own server sets; nginx drops the upstream's, too."""
OF_BROWSERS = b"access-control-"
"""How the names of headers begin that let web pages call a server: the gateway decides that for its own clients."""


def end_to_end(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Those of an engine's answer that are the client's, in their order; ``Connection`` may name more that are not."""
    headers = [(name.lower(), value) for name, value in raw]
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    dropped = HOP_BY_HOP | OF_THE_SERVER | named
    return [each for each in headers if each[0] not in dropped and not each[0].startswith(OF_BROWSERS)]
