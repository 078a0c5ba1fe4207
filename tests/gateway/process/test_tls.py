"""A gateway that serves HTTPS: a renewed certificate without a restart, and next to nothing in clear."""

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import trustme

from paternoster_contract.routing import RoutingTable
from paternoster_gateway.process.tls import Certificate

NAME = "gateway.example"
GATEWAY = Path(sys.executable).with_name("paternoster")


class Mounted:
    """A folder as the kubelet mounts a Secret: both files are replaced by one rename of a link."""

    def __init__(self, folder: Path) -> None:
        self.chain = folder / "tls.crt"
        self.key = folder / "tls.key"
        self._folder = folder
        self._written = 0
        for file in (self.chain, self.key):
            file.symlink_to(Path("..data") / file.name)

    def write(self, chain: bytes, key: bytes) -> None:
        self._written += 1
        version = self._folder / f"..{self._written}"
        version.mkdir()
        (version / self.chain.name).write_bytes(chain)
        (version / self.key.name).write_bytes(key)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        os.replace(link, self._folder / "..data")

    def issue(self, authority: trustme.CA) -> None:
        issued = authority.issue_cert(NAME, "127.0.0.1")
        self.write(b"".join(pem.bytes() for pem in issued.cert_chain_pems), issued.private_key_pem.bytes())


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    folder = tmp_path / "secret"
    folder.mkdir()
    return Mounted(folder)


@pytest.fixture
def first() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "routes.json"
    file.write_text(RoutingTable().model_dump_json())
    return file


@pytest.fixture
def urls(table: Path, mounted: Mounted, first: trustme.CA) -> Iterator[tuple[str, str]]:
    """URLs of a gateway process, plain and with TLS."""
    mounted.issue(first)
    words = [f"--routes={table}", "--port=0", "--tls-port=0"]
    words += [f"--tls-cert={mounted.chain}", f"--tls-key={mounted.key}"]
    process = subprocess.Popen([GATEWAY, "gateway", *words], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield tuple(process.stdout.readline().decode().split()[-1] for _ in range(2))  # type: ignore[misc]
    finally:
        process.kill()
        process.wait()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def models(url: str, authority: trustme.CA, name: str | None = None) -> int:
    """The status of a request on a connection of its own; ``aiohttp.ClientSSLError`` where it is not trusted."""
    context = trusting(authority)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/v1/models", ssl=context, server_hostname=name) as answer,
    ):
        return answer.status


async def listening(url: str, authority: trustme.CA) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await models(url, authority)
            except aiohttp.ClientSSLError:
                raise
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
            else:
                return


# With a server's name in the handshake, and without: an address is none.
@pytest.mark.parametrize("name", [NAME, None])
async def test_a_renewed_certificate_is_served_without_a_restart(
    urls: tuple[str, str], mounted: Mounted, first: trustme.CA, name: str | None
) -> None:
    _, url = urls
    await listening(url, first)
    assert await models(url, first, name) == 200
    # a connection that stands is left alone
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(first))) as standing:

        async def still_answered() -> None:
            async with standing.get(f"{url}/v1/models") as answer:
                await answer.read()  # an answer left unread takes its connection along
                assert answer.status == 200

        await still_answered()
        second = trustme.CA()
        mounted.issue(second)
        async with asyncio.timeout(30):
            while True:
                await still_answered()
                try:
                    assert await models(url, second, name) == 200
                    break
                except aiohttp.ClientSSLError:
                    await asyncio.sleep(0.1)
        with pytest.raises(aiohttp.ClientSSLError):
            await models(url, first, name)
        await still_answered()


async def test_the_plain_port_answers_probes_and_statistics_alone(urls: tuple[str, str], first: trustme.CA) -> None:
    plain, url = urls
    await listening(url, first)
    async with aiohttp.ClientSession() as session:
        for path in ("/health", "/stats", "/metrics", "/debug/requests"):
            async with session.get(plain + path) as answer:
                assert answer.status == 200, path
        for path in ("/v1/models", "/v1/chat/completions", "/", "/healthy", "/debug/requests-of-mine"):
            async with session.get(plain + path) as answer:
                assert answer.status == 403, path
                assert "use https" in (await answer.json())["error"]["message"]
        async with session.post(f"{plain}/v1/completions", json={"model": "m", "prompt": "secret"}) as answer:
            assert answer.status == 403


def test_half_a_renewed_pair_leaves_the_certificate_as_it_is(mounted: Mounted, first: trustme.CA) -> None:
    mounted.issue(first)
    certificate = Certificate(mounted.chain, mounted.key)
    assert certificate.refresh() is False
    other = trustme.CA().issue_cert(NAME)
    mounted.write(other.cert_chain_pems[0].bytes(), mounted.key.read_bytes())
    with pytest.raises(ssl.SSLError):
        certificate.refresh()
    assert handshake(certificate, first) == NAME
    mounted.write(b"", b"")
    with pytest.raises(OSError):  # noqa: PT011 - the text is OpenSSL's
        certificate.refresh()
    assert handshake(certificate, first) == NAME
    second = trustme.CA()
    mounted.issue(second)
    assert certificate.refresh() is True
    assert handshake(certificate, second) == NAME
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificate, first)


def handshake(certificate: Certificate, authority: trustme.CA) -> str:
    """In memory; the name in the server's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(authority).wrap_bio(to_client, to_server, server_hostname=NAME)
    server = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    peer = client.getpeercert()
    assert peer is not None
    return next(value for kind, value in peer["subjectAltName"] if kind == "DNS")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--tls-cert=nowhere.pem"], "belong together"),
        (["--tls-cert=nowhere.pem", "--tls-key=nowhere.key"], "nowhere.pem"),
    ],
)
def test_tls_flags_that_cannot_be_used_are_named_with_their_values(
    table: Path, words: list[str], complaint: str
) -> None:
    done = subprocess.run(
        [GATEWAY, "gateway", f"--routes={table}", "--port=0", "--tls-port=0", *words], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert complaint in done.stderr
