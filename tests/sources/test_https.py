"""One file on a web server, with certificates of the test's own authority."""

import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.sources.file_server import Answer, FileServer, entity_tag
from tests.sources.model_files import AT_ONCE

from paternoster_sources import errors
from paternoster_sources.fetch import fetch_model
from paternoster_sources.storage.cache import DownloadCache

DATA = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
PATH = "/models/tiny.gguf"


class Web:
    """Files by path, and where redirects lead."""

    def __init__(self, authority: trustme.CA) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.files = {PATH: DATA}
        self.redirects: dict[str, str] = {}
        self.chunked = False
        self.statuses: dict[str, int] = {}
        self.server = FileServer(self._answer, context)

    def address(self, path: str = PATH) -> str:
        return self.server.url + path

    def _answer(self, path: str, headers: dict[str, str]) -> Answer:
        if path in self.redirects:
            return Answer(status=302, headers={"Location": self.redirects[path]})
        if path in self.statuses:
            return Answer(status=self.statuses[path])
        data = self.files.get(path)
        if data is None:
            return Answer(status=404)
        return Answer(data, headers={"ETag": entity_tag(data)}, chunked=self.chunked, ranges=not self.chunked)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def web(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    web = Web(authority)
    with web.server.running():
        yield web


def test_a_file(web: Web, cache: DownloadCache) -> None:
    model = fetch_model(web.address(), cache, retry=AT_ONCE)
    assert model.format == "gguf"
    assert model.path.name == "tiny.gguf"
    assert model.path.read_bytes() == DATA
    num_requests = len(web.server.received)
    assert fetch_model(web.address(), cache, retry=AT_ONCE).path == model.path
    assert len(web.server.received) == num_requests


def test_a_cached_file_is_compared_with_what_came_where_the_server_gives_no_hash(
    web: Web, cache: DownloadCache
) -> None:
    model = fetch_model(web.address(), cache, retry=AT_ONCE)
    assert model.lease is not None
    model.lease.close()
    model.path.write_bytes(DATA[::-1])
    assert fetch_model(web.address(), cache, retry=AT_ONCE).path.read_bytes() == DATA


def test_a_file_of_a_known_hash(web: Web, cache: DownloadCache) -> None:
    assert fetch_model(f"{web.address()}#sha256={SHA256}", cache, retry=AT_ONCE).path.read_bytes() == DATA
    web.files[PATH] = b"x" + DATA[1:]
    other = f"{web.address()}#sha256={'0' * 64}"
    with pytest.raises(errors.Corrupted, match=f"must be {'0' * 64}"):
        fetch_model(other, cache, retry=AT_ONCE)


def test_after_a_break_only_the_rest_is_asked_for(web: Web, cache: DownloadCache) -> None:
    cut = len(DATA) * 3 // 10
    web.server.breaks[PATH] = [1, cut]
    assert fetch_model(web.address(), cache, retry=AT_ONCE).path.read_bytes() == DATA
    assert [(request.start, request.sent) for request in web.server.of(PATH)] == [
        (0, 1),
        (0, cut),
        (cut, len(DATA) - cut),
    ], "its size, its first part, the rest"


def test_a_file_that_is_replaced_between_two_attempts(web: Web, cache: DownloadCache) -> None:
    """The part that came is of the old file: it must not be joined with the rest of the new one."""
    web.server.breaks[PATH] = [1, 1000]
    answer, left = web.server.answer, iter(range(3))

    def replacing(path: str, headers: dict[str, str]) -> Answer:
        if next(left) == 2:
            web.files[PATH] = bytes(reversed(DATA))
        return answer(path, headers)

    web.server.answer = replacing
    with pytest.raises(errors.Corrupted, match="it changed while it was fetched"):
        fetch_model(web.address(), cache, retry=AT_ONCE)


def test_a_file_that_is_replaced_before_it_is_asked_for_again(web: Web, cache: DownloadCache) -> None:
    web.server.breaks[PATH] = [1, 1000, 0, 0]
    with pytest.raises(errors.Unreachable):
        fetch_model(web.address(), cache, retry=AT_ONCE)
    new = bytes(reversed(DATA))
    web.files[PATH] = new
    assert fetch_model(web.address(), cache, retry=AT_ONCE).path.read_bytes() == new


def test_redirects_to_another_https_host_are_followed(web: Web, cache: DownloadCache) -> None:
    web.redirects["/latest.gguf"] = web.address()
    assert fetch_model(web.address("/latest.gguf"), cache, retry=AT_ONCE).path.read_bytes() == DATA


def test_redirects_to_plain_http_are_not(web: Web, cache: DownloadCache) -> None:
    with FileServer(lambda path, headers: Answer(DATA)).running() as plain:
        web.redirects[PATH] = f"{plain.url}/tiny.gguf"
        with pytest.raises(errors.UnsafeListing, match=r"redirected to http://127\.0\.0\.1: must be https"):
            fetch_model(web.address(), cache, retry=AT_ONCE)
        assert plain.received == []


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", PATH])
def test_redirects_to_nowhere(web: Web, cache: DownloadCache, target: str) -> None:
    web.redirects[PATH] = target
    with pytest.raises(errors.UnsafeListing):
        fetch_model(web.address(), cache, retry=AT_ONCE)


def test_an_authority_that_is_not_trusted(
    web: Web, cache: DownloadCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with pytest.raises(errors.Unreachable, match=r"CERTIFICATE_VERIFY_FAILED.*\$SSL_CERT_FILE"):
        fetch_model(web.address(), cache, retry=AT_ONCE)
    assert web.server.received == []


def test_a_file_of_unknown_size(web: Web, cache: DownloadCache) -> None:
    web.chunked = True
    with pytest.raises(errors.UnsafeListing, match="does not say how many bytes"):
        fetch_model(web.address(), cache, retry=AT_ONCE)


@pytest.mark.parametrize(
    ("status", "reason", "times"),
    [
        (404, errors.SourceNotFound, 1),
        (401, errors.Unauthorized, 1),
        (403, errors.Unauthorized, 1),
        (418, errors.UnsafeListing, 1),
        (429, errors.Unreachable, AT_ONCE.attempts),
        (503, errors.Unreachable, AT_ONCE.attempts),
    ],
)
def test_statuses(web: Web, cache: DownloadCache, status: int, reason: type[Exception], times: int) -> None:
    web.statuses[PATH] = status
    with pytest.raises(reason, match=f"{PATH}'.*answers {status}"):
        fetch_model(web.address(), cache, retry=AT_ONCE)
    assert len(web.server.received) == times


@pytest.mark.parametrize("headers", [{}, {"Last-Modified": "Mon, 23 Nov 2026 12:00:00 GMT"}])
def test_without_an_entity_tag(web: Web, cache: DownloadCache, headers: dict[str, str]) -> None:
    """A date joins two parts as well; without either a file begins anew, as the parts may be of two contents."""
    web.server.answer = lambda path, _: Answer(web.files[path], headers=headers)
    cut = len(DATA) * 3 // 10
    web.server.breaks[PATH] = [1, cut]
    assert fetch_model(web.address(), cache, retry=AT_ONCE).path.read_bytes() == DATA
    assert web.server.of(PATH)[2].start == (cut if headers else 0)


def test_a_file_of_authorities_that_is_not_there(
    web: Web, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/there/is/none.pem")
    for address in (web.address(), "s3://bucket/tiny"):
        with pytest.raises(errors.Unreachable, match=r"\$SSL_CERT_FILE is '/there/is/none\.pem'"):
            fetch_model(address, cache, retry=AT_ONCE)
