"""Ranges of files over HTTP: redirects, statuses and headers judged before a byte is believed."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from paternoster_sources.errors import Corrupted, Interrupted, SourceError, Unreachable, UnsafeListing
from paternoster_sources.plan import RemoteFile
from paternoster_sources.remote.source import Stream

TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
"""Seconds between two packets, and for a connection."""
LONGEST_ERROR = 64 * 1024
PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses that another attempt may not get."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

# It would log every address: those of a CDN are signed, so that who reads the log may fetch.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class Http:
    """A client that goes only where it may: from ``https`` to nothing less, and credentials not to other hosts."""

    def __init__(self, *, plain: bool = False) -> None:
        """``plain``: whether ``http`` is allowed, for an endpoint that was configured so."""
        self._plain = plain
        self._client = httpx2.Client(
            follow_redirects=True, max_redirects=10, timeout=TIMEOUT, event_hooks={"request": [self._check_request]}
        )

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def get(self, url: str, headers: dict[str, str], **more: Any) -> Iterator[httpx2.Response]:
        """A response, whatever its status, without its body; raises :class:`Interrupted`."""
        try:
            # Compressed bytes would be neither of the size nor of the hash that were promised.
            with self._client.stream(
                "GET", url, headers={"Accept-Encoding": "identity", **headers}, **more
            ) as response:
                if response.status_code in PASSING:
                    raise Interrupted(_describe_response(response), _retry_after(response))
                yield response
        except httpx2.TooManyRedirects as error:
            raise UnsafeListing(f"{url}: redirects for ever") from error
        except httpx2.UnsupportedProtocol as error:
            raise UnsafeListing(f"{url}: redirects to what is no web server: {_one_line(error)}") from error
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Unreachable(
                    f"{_host_of(url)}: {_one_line(error)}; $SSL_CERT_FILE names other authorities"
                ) from error
            raise Interrupted(f"{_host_of(url)}: {_one_line(error)}") from error
        except httpx2.InvalidURL as error:
            raise UnsafeListing(f"{url}: redirects to what is no address: {_one_line(error)}") from error

    def _check_request(self, request: httpx2.Request) -> None:
        if request.url.scheme != "https" and not self._plain:
            raise UnsafeListing(f"redirected to {request.url.scheme}://{request.url.host}: must be https")


def read_body(response: httpx2.Response, most: int) -> bytes:
    """All of a response's body; raises :class:`UnsafeListing` above ``most`` bytes."""
    data = bytearray()
    for chunk in response.iter_raw():
        data += chunk
        if len(data) > most:
            raise UnsafeListing(f"{response.url.host} answers with more than {most} bytes")
    return bytes(data)


def from_byte(start: int) -> dict[str, str]:
    """The header that asks for a file from ``start`` on."""
    return {"Range": f"bytes={start}-"} if start else {}


def read_stream(response: httpx2.Response, file: RemoteFile, start: int) -> Stream:
    """The bytes of a good answer; raises :class:`Corrupted` where the file is not the one that was listed."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise UnsafeListing(f"{file.name}: the server encodes what was asked for as it is")
    begins, size = read_range(response)
    if response.status_code == 206 and begins != start:
        raise Interrupted(f"{file.name}: asked for the bytes from {start} on, got those from {begins} on")
    if size is not None and size != file.size:
        raise Corrupted(f"{file.name}: has {size} bytes, was listed with {file.size}: it changed, or is another file")
    return Stream(begins, response.iter_raw())


def read_range(response: httpx2.Response) -> tuple[int, int | None]:
    """Where a body begins in its file, and the file's size in bytes, if the header has it."""
    if response.status_code == 206:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None:
            raise UnsafeListing(f"{response.url.host}: a part of a file without saying which")
        return int(found[1]), int(found[3])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if re.fullmatch(r"\d{1,18}", length) else None


def describe_status(what: str, response: httpx2.Response) -> SourceError:
    return UnsafeListing(f"{what}: {_describe_response(response)}, which was not expected")


def _describe_response(response: httpx2.Response) -> str:
    return f"{response.url.host} answers {response.status_code} {response.reason_phrase}".rstrip()


def _retry_after(response: httpx2.Response) -> float:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if re.fullmatch(r"\d{1,6}", seconds) else 0.0


def _host_of(url: str) -> str:
    return httpx2.URL(url).host


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
