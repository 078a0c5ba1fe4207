"""One file on a web server."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from paternoster_sources.address import Address
from paternoster_sources.errors import Corrupted, SourceNotFound, Unauthorized, UnsafeListing
from paternoster_sources.plan import Digest, Listing, RemoteFile
from paternoster_sources.remote.http import Http, describe_status, from_byte, read_range, read_stream
from paternoster_sources.remote.source import Stream

_ENTITY_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,200}"')
_DATE = re.compile(r"[A-Za-z]{3}, [0-9A-Za-z: ]{1,40} GMT")


class Https:
    """The file behind an ``https`` address, which redirects may lead to other hosts, but not to ``http``."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._url = address.text.partition("#")[0]
        self._http = Http()

    def close(self) -> None:
        self._http.close()

    def list(self) -> Listing:
        # Not HEAD: some servers have no answer to it, and signed addresses are signed for GET.
        with self._http.get(self._url, {"Range": "bytes=0-0"}) as response:
            self._check_response(response)
            _, size = read_range(response)
            version = _version_of(response)
        if size is None:
            raise UnsafeListing(f"{self._what}: the server does not say how many bytes it has")
        digest = Digest("sha256", self._address.sha256) if self._address.sha256 else None
        assert self._address.file is not None
        return Listing((RemoteFile(self._address.file, size, digest, version),))

    @contextmanager
    def open_stream(self, file: RemoteFile, start: int) -> Iterator[Stream]:
        with self._http.get(self._url, from_byte(start)) as response:
            self._check_response(response)
            if _version_of(response) != file.version:
                raise Corrupted(f"{self._what}: it changed while it was fetched")
            yield read_stream(response, file, start)

    @property
    def _what(self) -> str:
        return f"model {self._address.text!r}"

    def _check_response(self, response: httpx2.Response) -> None:
        match response.status_code:
            case 200 | 206:
                return
            case 401 | 403:
                raise Unauthorized(f"{self._what}: {response.url.host} answers {response.status_code}")
            case 404 | 410:
                raise SourceNotFound(f"{self._what}: {response.url.host} answers {response.status_code}")
            case 416:
                raise Corrupted(f"{self._what}: the file is empty, or shorter than it was listed")
        raise describe_status(self._what, response)


def _version_of(response: httpx2.Response) -> str | None:
    """What another content would have another of."""
    for name, form in (("ETag", _ENTITY_TAG), ("Last-Modified", _DATE)):
        header: str = response.headers.get(name, "")
        if form.fullmatch(header):
            return header
    return None
