"""Requests that parsers read in different ways, each with the statuses that a server with one framing answers.

Every one is followed by an honest request on the same connection. Where the first is answered as what it is, so is the
second; where it is refused, the connection ends and the second is not read. ``PATH`` stands for a path of the listener
that needs no key, and a request hidden in a body asks for the same: were it read, it would be answered 200.
"""

from dataclasses import dataclass

HONEST = b"GET PATH HTTP/1.1\r\nHost: x\r\n\r\n"
LINE = b"GET PATH HTTP/1.1\r\nHost: x\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
LENGTH = b"Content-Length: LENGTH\r\n\r\n" + HONEST
"""A body that is a request."""
TE = b"Transfer-Encoding: chunked\r\n"
CHUNK = b"SIZE\r\n" + HONEST + b"\r\n"
CHUNKED = TE + b"\r\n" + CHUNK + b"0\r\n\r\n"
BOTH = (200, 200)
BAD = (400,)


@dataclass(frozen=True)
class Attempt:
    """What is sent before the honest request, and the statuses that come back; none where the connection just ends."""

    sent: bytes
    statuses: tuple[int, ...]

    def for_path(self, path: str) -> bytes:
        """All that is sent on one connection to a listener that answers ``path``."""
        honest = HONEST.replace(b"PATH", path.encode())
        sent = self.sent.replace(b"PATH", path.encode())
        return sent.replace(b"LENGTH", b"%d" % len(honest)).replace(b"SIZE", b"%x" % len(honest)) + honest


_ATTEMPTS: dict[str, tuple[bytes, tuple[int, ...]]] = {
    # An offer of another protocol is ignored, and the body is the request's.
    "h2c": (LINE + UPGRADE + b"\r\n", BOTH),
    "h2c, length": (LINE + UPGRADE + LENGTH, BOTH),
    "h2c, length first": (LINE + b"Content-Length: LENGTH\r\n" + UPGRADE + b"\r\n" + HONEST, BOTH),
    "h2c, chunks": (LINE + UPGRADE + CHUNKED, BOTH),
    "h2c, chunks and a trailer": (LINE + UPGRADE + TE + b"\r\n" + CHUNK + b"0\r\nUpgrade: h2c\r\n\r\n", BOTH),
    "h2c, both lengths": (LINE + UPGRADE + b"Content-Length: 4\r\n" + CHUNKED, BAD),
    "h2c twice": (LINE + UPGRADE + LENGTH + LINE + UPGRADE + LENGTH, (*BOTH, 200)),
    "h2c, HTTP/1.0": (b"GET PATH HTTP/1.0\r\nHost: x\r\n" + UPGRADE + LENGTH, (200,)),
    "h2c, connection closes": (LINE + UPGRADE.replace(b"Upgrade,", b"Upgrade, close,", 1) + LENGTH, (200,)),
    "websocket": (LINE + WEBSOCKET + b"\r\n", BOTH),
    "websocket, length": (LINE + WEBSOCKET + LENGTH, BOTH),
    "websocket, chunks": (LINE + WEBSOCKET + CHUNKED, BOTH),
    "upgrade to TLS": (LINE + b"Connection: upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1\r\n" + LENGTH, BOTH),
    "upgrade to nothing": (LINE + b"Connection: upgrade\r\nUpgrade:\r\n" + LENGTH, BOTH),
    "upgrade in two headers": (LINE + b"Upgrade: a\r\nConnection: upgrade\r\nUpgrade: b\r\n" + LENGTH, BOTH),
    "upgrade that no connection names": (LINE + b"Upgrade: h2c\r\n" + LENGTH, BOTH),
    "upgrade, no host": (b"GET PATH HTTP/1.1\r\n" + UPGRADE + LENGTH, BAD),
    "upgrade, two lengths": (LINE + UPGRADE + b"Content-Length: 0\r\n" + LENGTH, BAD),
    "upgrade, gzip": (LINE + UPGRADE + b"Content-Encoding: gzip\r\n" + LENGTH, (415,)),
    "connect": (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", (501,)),
    "connect, length": (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n" + LENGTH, (501,)),
    "connect to a path": (b"CONNECT PATH HTTP/1.1\r\nHost: x\r\n\r\n", (501,)),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BAD),
    "preface of HTTP/2 with a frame": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", BAD),
    # Lengths.
    "length": (LINE + LENGTH, BOTH),
    "length, leading zeros": (LINE + b"Content-Length: 000LENGTH\r\n\r\n" + HONEST, BOTH),
    "length 0": (LINE + b"Content-Length: 0\r\n\r\n", BOTH),
    "length and chunks": (LINE + b"Content-Length: 4\r\n" + CHUNKED, BAD),
    "chunks and length": (LINE + TE + b"Content-Length: 5\r\n\r\n0\r\n\r\n", BAD),
    "two lengths": (LINE + b"Content-Length: 0\r\n" + LENGTH, BAD),
    "two equal lengths": (LINE + b"Content-Length: LENGTH\r\n" + LENGTH, BAD),
    "list of lengths": (LINE + b"Content-Length: 0, LENGTH\r\n\r\n" + HONEST, BAD),
    "list of equal lengths": (LINE + b"Content-Length: LENGTH, LENGTH\r\n\r\n" + HONEST, BAD),
    "length with a plus": (LINE + b"Content-Length: +LENGTH\r\n\r\n" + HONEST, BAD),
    "length with a minus": (LINE + b"Content-Length: -1\r\n\r\n", BAD),
    "length in hexadecimal": (LINE + b"Content-Length: 0x10\r\n\r\n", BAD),
    "length with an underscore": (LINE + b"Content-Length: 1_0\r\n\r\n", BAD),
    "length with a space inside": (LINE + b"Content-Length: 1 0\r\n\r\n", BAD),
    "length with a point": (LINE + b"Content-Length: 1.0\r\n\r\n", BAD),
    "empty length": (LINE + b"Content-Length:\r\n\r\n", BAD),
    "length of other digits": (LINE + "Content-Length: \u0661\r\n\r\n".encode(), BAD),
    "length beyond 64 bits": (LINE + b"Content-Length: 18446744073709551616\r\n\r\n", BAD),
    "length of 63 bits": (LINE + b"Content-Length: 9223372036854775807\r\n\r\n", (413,)),
    "folded length": (LINE + b"Content-Length: 1\r\n 0\r\n\r\n", BAD),
    "length on the next line": (LINE + b"Content-Length:\r\n 0\r\n\r\n", BAD),
    "space before the colon of a length": (LINE + b"Content-Length : 0\r\n\r\n", BAD),
    "tab before the colon of a length": (LINE + b"Content-Length\t: 0\r\n\r\n", BAD),
    # Transfer codings.
    "chunks": (LINE + CHUNKED, BOTH),
    "chunks, in capitals": (LINE + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n0\r\n\r\n", BOTH),
    "chunked twice": (LINE + TE + CHUNKED, BAD),
    "gzip, chunked": (LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", (501,)),
    "identity and chunked": (LINE + b"Transfer-Encoding: identity\r\n" + CHUNKED, (501,)),
    "chunked, identity": (LINE + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", (400, 501)),
    "identity": (LINE + b"Transfer-Encoding: identity\r\n\r\n", (400, 501)),
    "xchunked": (LINE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", (400, 501)),
    "quoted chunked": (LINE + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', (400, 501)),
    "chunked with a parameter": (LINE + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", (400, 501)),
    "vertical tab before chunked": (LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", BAD),
    "chunked on the next line": (LINE + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", BAD),
    "space before the colon of a coding": (LINE + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", BAD),
    "chunks, HTTP/1.0": (b"GET PATH HTTP/1.0\r\nHost: x\r\n" + CHUNKED, BAD),
    # Chunks.
    "chunk with an extension": (LINE + TE + b'\r\n1;a=b;c="d\\"e"\r\nx\r\n0;f\r\n\r\n', BOTH),
    "chunk with half a quoted extension": (LINE + TE + b'\r\n1;a="\r\nx\r\n0\r\n\r\n', BAD),
    "chunk with a line break in an extension": (LINE + TE + b"\r\n1;a\nb\r\nx\r\n0\r\n\r\n", BAD),
    "chunk with a carriage return in an extension": (LINE + TE + b"\r\n1;a\rb\r\nx\r\n0\r\n\r\n", BAD),
    "chunk size beyond 64 bits": (LINE + TE + b"\r\n10000000000000001\r\nx\r\n0\r\n\r\n", BAD),
    "negative chunk size": (LINE + TE + b"\r\n-1\r\nx\r\n0\r\n\r\n", BAD),
    "chunk size with 0x": (LINE + TE + b"\r\n0x1\r\nx\r\n0\r\n\r\n", BAD),
    "chunk size with a space": (LINE + TE + b"\r\n1 \r\nx\r\n0\r\n\r\n", BAD),
    "empty chunk size": (LINE + TE + b"\r\n\r\nx\r\n0\r\n\r\n", BAD),
    "chunk that ends with a bare line break": (LINE + TE + b"\r\n1\r\nx\n0\r\n\r\n", BAD),
    "chunk size that ends with a bare line break": (LINE + TE + b"\r\n1\nx\r\n0\r\n\r\n", BAD),
    "chunk longer than its size": (LINE + TE + b"\r\n1\r\nxy\r\n0\r\n\r\n", BAD),
    "trailers": (LINE + TE + b"\r\n0\r\nX-A: b\r\nHost: y\r\n\r\n", BOTH),
    "trailer that is a length": (LINE + TE + b"\r\n0\r\nContent-Length: LENGTH\r\n\r\n", BAD),
    "trailer that is a coding": (LINE + TE + b"\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", BAD),
    "trailer that is a request": (LINE + TE + b"\r\n0\r\nGET PATH HTTP/1.1\r\nHost: x\r\n\r\n", BAD),
    # Lines and headers.
    "nothing but line breaks before": (b"\r\n\r\n" + HONEST, BOTH),
    "folded header": (LINE + b"X-A: b\r\n c\r\n\r\n", BAD),
    "folded first header": (b"GET PATH HTTP/1.1\r\n Host: x\r\n\r\n", BAD),
    "bare line breaks": (b"GET PATH HTTP/1.1\nHost: x\n\n", BAD),
    "bare line break inside a value": (LINE + b"X-A: b\nContent-Length: 9\r\n\r\n", BAD),
    "bare carriage return inside a value": (LINE + b"X-A: b\rContent-Length: 9\r\n\r\n", BAD),
    "bare carriage return at the end of the headers": (LINE + b"\r\r\n", BAD),
    "NUL in a value": (LINE + b"X-A: b\0c\r\n\r\n", BAD),
    "NUL in a name": (LINE + b"X-\0A: b\r\n\r\n", BAD),
    "NUL in the path": (b"GET PATH\0 HTTP/1.1\r\nHost: x\r\n\r\n", BAD),
    "empty name": (LINE + b": b\r\n\r\n", BAD),
    "no colon": (LINE + b"nothing\r\n\r\n", BAD),
    "space before the colon": (LINE + b"X-A : b\r\n\r\n", BAD),
    "no host": (b"GET PATH HTTP/1.1\r\n\r\n", BAD),
    "two hosts": (LINE + b"Host: y\r\n\r\n", BAD),
    "expects to continue": (LINE + b"Expect: 100-continue\r\n" + LENGTH, BOTH),
    "gzip": (LINE + b"Content-Encoding: gzip\r\n" + LENGTH, (415,)),
    "gzip in chunks": (LINE + b"Content-Encoding: identity, gzip\r\n" + CHUNKED, (415,)),
    "content of no coding": (LINE + b"Content-Encoding: identity\r\n" + LENGTH, BOTH),
    # Versions and targets.
    "HTTP/0.9": (b"GET PATH\r\n", (400, 505)),
    "HTTP/0.9, as a version": (b"GET PATH HTTP/0.9\r\n\r\n", (505,)),
    "HTTP/1.0": (b"GET PATH HTTP/1.0\r\n\r\n", (200,)),
    "HTTP/1.0 that stays": (b"GET PATH HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", (200,)),
    "HTTP/1.2": (b"GET PATH HTTP/1.2\r\nHost: x\r\n\r\n", BAD),
    "HTTP/2.0": (b"GET PATH HTTP/2.0\r\nHost: x\r\n\r\n", (505,)),
    "HTTP/9.9": (b"GET PATH HTTP/9.9\r\nHost: x\r\n\r\n", BAD),
    "no digits in the version": (b"GET PATH HTTP/x.y\r\nHost: x\r\n\r\n", BAD),
    "lower case version": (b"GET PATH http/1.1\r\nHost: x\r\n\r\n", BAD),
    "two spaces": (b"GET  PATH  HTTP/1.1\r\nHost: x\r\n\r\n", BOTH),
    "tab": (b"GET\tPATH HTTP/1.1\r\nHost: x\r\n\r\n", BAD),
    "absolute target": (b"GET http://yPATH HTTP/1.1\r\nHost: x\r\n" + LENGTH, BOTH),
    "control character in the path": (b"GET PATH%0a HTTP/1.1\r\nHost: x\r\n\r\n", BAD),
    "unknown method": (b"SMUGGLE PATH HTTP/1.1\r\nHost: x\r\n\r\n", BAD),
    "TLS": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500), BAD),
    "connection closes": (LINE + b"Connection: close\r\n" + LENGTH, (200,)),
}  # fmt: skip
ATTEMPTS = {name: Attempt(*attempt) for name, attempt in _ATTEMPTS.items()}
HALVES = (
    b"", b"GET", LINE, LINE + b"X", LINE + b"Content-Length: 9\r\n\r\nx",
    LINE + UPGRADE + b"Content-Length: 9\r\n\r\nx", LINE + TE + b"\r\n5\r\nx", LINE + TE + b"\r\n1\r\nx\r\n0\r\n",
)  # fmt: skip
"""Halves of requests, after which the client leaves."""
