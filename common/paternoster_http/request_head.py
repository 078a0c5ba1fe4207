"""What the head of a request may say, so that its body has one length, which every reader of it sees alike."""

import re
from collections.abc import Sequence

from paternoster_http.errors.refusal import Refusal

VERSIONS = ("1.0", "1.1")
CONTROL_CHARACTER = re.compile(rb"%(?:[01][0-9a-f]|7f)", re.IGNORECASE)
"""In a path: routers take one with a newline at its end for the one without, and who checks keys may not."""
MOST_DIGITS = 19
"""Digits of a length beyond which :class:`int` is not asked."""

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""


def check_version(version: str) -> None:
    """Raises :class:`Refusal` (505) for a version that is not spoken here."""
    if version not in VERSIONS:
        raise Refusal(505, f"The request is of HTTP/{version}: {' and '.join(VERSIONS)} are spoken here.")


def check_head(version: str, path: bytes, headers: Headers, max_body_bytes: int) -> bool:
    """Whether the body comes in chunks; raises :class:`Refusal` for a head that readers may take in several ways.

    The parser has refused several lengths, and a length beside a transfer coding.
    """
    if CONTROL_CHARACTER.search(path):
        raise Refusal(400, "The path has control characters.")
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version != "1.0"):
        raise Refusal(400, f"The request has {hosts} Host headers: HTTP/1.1 asks for one (RFC 9112, 3.2).")
    if b"content-length" in names:
        length = headers[names.index(b"content-length")][1]
        if length.isdigit() and (len(length) > MOST_DIGITS or int(length) > max_body_bytes):
            raise refuse_body_length(max_body_bytes)
        _check_content_encoding(headers)
        return False
    if b"transfer-encoding" in names:
        _check_transfer_encoding(version, headers)
        _check_content_encoding(headers)
        return True
    return False


def refuse_body_length(max_body_bytes: int) -> Refusal:
    """The refusal of a body that is longer."""
    return Refusal(413, f"The body is longer than {max_body_bytes} bytes.")


def render_head_without_upgrade(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """The head of the same request without its offer of another protocol; raises :class:`Refusal` for CONNECT."""
    if method == b"CONNECT":
        raise Refusal(501, "This server is no proxy: it does not implement CONNECT.")
    fields = [b"%b: %b" % field for field in headers if field[0] != b"upgrade"]
    return b"\r\n".join([b"%b %b HTTP/%b" % (method, url, version.encode()), *fields, b"", b""])


def _check_transfer_encoding(version: str, headers: Headers) -> None:
    if version == "1.0":
        raise Refusal(400, "The request is of HTTP/1.0, which has no Transfer-Encoding (RFC 9112, 6.1).")
    codings = _join_values(headers, b"transfer-encoding")
    if codings.strip().lower() != "chunked":
        raise Refusal(501, f"Transfer-Encoding is {codings!r}: chunked alone is implemented.")


def _check_content_encoding(headers: Headers) -> None:
    codings = _join_values(headers, b"content-encoding")
    if codings.strip().lower() not in ("", "identity"):
        raise Refusal(
            415, f"Content-Encoding is {codings!r}: bodies are taken as they are, with identity or no such header."
        )


def _join_values(headers: Headers, wanted: bytes) -> str:
    return ", ".join(value.decode("latin-1") for name, value in headers if name == wanted)
