"""Every port of every command reads requests in one way, and answers the next client whatever one has sent."""

import ast
import asyncio
import json
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.security.listeners.every_listener import Commands, Listener, every_listener, listening_ports
from tests.security.listeners.hostile_requests import ATTEMPTS, HALVES, HONEST

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
LISTENING = {"batch", "up", "gateway", "operator", "picker", "pull", "serve"}
"""Commands of ``paternoster``; engines are started by ``up``."""
LISTENERS = (
    "up: operator", "up: gateway", "serve chat: API", "serve chat: admin", "serve embed: API", "serve embed: admin",
    "gateway: listening, http", "gateway: statistics, http", "gateway: listening, https", "operator", "picker", "batch",
    "pull",
)  # fmt: skip
API = "serve chat: API"
COMPLETION = {"model": "chat", "prompt": "A lift", "max_tokens": 4, "temperature": 0}
QUIET_SECONDS = 1.0
"""Without another byte: then no more will come."""
END_SECONDS = 15.0
"""In which a refused connection ends: over TLS once the client has had time to read why."""
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One context for all clients: to read the machine's authorities takes longer than a handshake, which must end."""
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
OPENS = frozenset({
    "HTTPServer", "ThreadingHTTPServer", "TCPServer", "ThreadingTCPServer", "WSGIServer", "make_server", "AppRunner",
    "TCPSite", "run_app", "start_server", "create_server", "start_unix_server", "start_http_server", "listen",
})  # fmt: skip
"""Calls that open a port."""
OPENING = {
    "common/paternoster_http",
    "gateway/paternoster_gateway/process/drain.py",  # by our server
    "operator/paternoster_operator/local/ports.py",  # for a gateway or an engine, which inherits it
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with every_listener(tmp_path_factory.mktemp("commands")) as commands:
        yield commands


@asynccontextmanager
async def connected(listener: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=TLS if listener.tls else None)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchange(
    listener: Listener, sent: bytes, quiet: float = QUIET_SECONDS, *, piece: int = 2**16
) -> tuple[tuple[int, ...], bool]:
    """Statuses of the answers until it is quiet or the connection ends; whether it has ended."""
    received = b""
    async with connected(listener) as (reader, writer):
        with suppress(ConnectionError):
            for start in range(0, len(sent), piece):
                writer.write(sent[start : start + piece])
                await asyncio.sleep(0)
            try:
                while part := await asyncio.wait_for(reader.read(65536), quiet):
                    received += part
            except TimeoutError:
                return statuses_of(received), False
        return statuses_of(received), True


def statuses_of(received: bytes) -> tuple[int, ...]:
    """Interim answers are left out."""
    return tuple(status for found in STATUS.findall(received) if (status := int(found)) >= 200)


async def read_status(listener: Listener, sent: bytes) -> int:
    """The status of the first answer; waits for it, once more where the port gave the place to another connection."""
    for _ in range(3):
        with suppress(ConnectionError):
            async with connected(listener) as (reader, writer):
                writer.write(sent)
                return int((await reader.readline()).split()[1])
    raise AssertionError(f"no connection to {listener.port} lasted for an answer")


def test_every_command_that_listens_is_here_with_all_its_ports(commands: Commands) -> None:
    names = {each.name for each in entry_points(group="paternoster.commands")}
    silent = {"crd", "get", "plan", "status", "explain", "doctor"}
    silent |= {"profile", "load", "fit", "bench", "simulate", "vllm-plugin"}
    assert names == LISTENING | silent, "is a new command one that listens?"
    assert sorted(commands.listeners) == sorted(LISTENERS)
    found = set().union(*(listening_ports(process) for process in commands.processes.values()))
    assert found == {listener.port for listener in commands.listeners.values()} | commands.grpc_ports


def test_only_our_server_opens_ports() -> None:
    """ZMQ's, of KV events, is no HTTP and binds in another way."""
    found = set()
    for room in ("common", "engine", "kernels", "operator", "gateway", "batch", "simulator"):
        for path in (ROOT / room).rglob("*.py"):
            if any(_called_name(node) in OPENS for node in ast.walk(ast.parse(path.read_text()))):
                found.add(str(path.relative_to(ROOT)))
    assert {each for each in found if not each.startswith(tuple(OPENING))} == set()
    assert all(any(each.startswith(opening) for each in found) for opening in OPENING)


def _called_name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_request_is_read_in_one_way(commands: Commands, name: str) -> None:
    listener = commands.listeners[name]
    honest = HONEST.replace(b"PATH", listener.path.encode())

    async def attempt(each: str) -> str:
        wanted = ATTEMPTS[each].statuses
        refused = wanted[0] >= 400
        quiet = END_SECONDS if refused else QUIET_SECONDS
        statuses, ended = await exchange(listener, ATTEMPTS[each].for_path(listener.path), quiet)
        right = (len(statuses) == 1 and statuses[0] in wanted) if refused else statuses == wanted
        if not right or (refused and not ended):
            return f"{each}: {statuses}, {'ended' if ended else 'open'}"
        return "" if await read_status(listener, honest) == 200 else f"{each}: the next client is not answered"

    faults = [fault for fault in await asyncio.gather(*map(attempt, ATTEMPTS)) if fault]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", LISTENERS)
async def test_who_leaves_in_the_middle_leaves_nothing(commands: Commands, name: str) -> None:
    listener = commands.listeners[name]
    for half in HALVES:
        async with connected(listener) as (_, writer):
            writer.write(half.replace(b"PATH", listener.path.encode()))
            await writer.drain()
        assert await read_status(listener, HONEST.replace(b"PATH", listener.path.encode())) == 200, half


@pytest.mark.parametrize("name", LISTENERS)
async def test_requests_in_single_bytes_are_read_in_the_same_way(commands: Commands, name: str) -> None:
    """Wherever a network cuts an upgrade, its body stays its body."""
    listener = commands.listeners[name]
    attempts = [ATTEMPTS[each] for each in ("h2c, length", "websocket, chunks", "gzip", "two lengths")]
    # At once: each waits until it is quiet.
    answers = await asyncio.gather(*(exchange(listener, each.for_path(listener.path), piece=1) for each in attempts))
    assert [statuses for statuses, _ in answers] == [each.statuses for each in attempts]


@pytest.mark.parametrize("name", LISTENERS)
async def test_an_answer_to_http_1_0_has_no_chunks(commands: Commands, name: str) -> None:
    listener = commands.listeners[name]
    for path in (listener.path, "/metrics", "/nothing/here"):
        async with connected(listener) as (reader, writer):
            writer.write(b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
            head, _, _ = (await asyncio.wait_for(reader.read(), 30)).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower(), path
        assert b"connection: close" in head.lower(), path


@pytest.mark.parametrize("name", LISTENERS)
async def test_half_sent_requests_leave_probes_alone(commands: Commands, name: str) -> None:
    """More than a port has places, all from one address; the next client still gets in."""
    listener = commands.listeners[name]
    async with _half_sent(listener, 300):
        for _ in range(3):
            honest = HONEST.replace(b"PATH", listener.path.encode())
            assert await asyncio.wait_for(read_status(listener, honest), 60) == 200


@asynccontextmanager
async def _half_sent(listener: Listener, count: int) -> AsyncIterator[None]:
    """``count`` requests whose second half does not come."""
    writers = []
    for _ in range(count):
        with suppress(OSError, TimeoutError):
            _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", listener.port), 1)
            writer.write(b"GET " + listener.path.encode() + b" HTTP/1.1\r\nHost:")
            writers.append(writer)
    yield
    for writer in writers:
        writer.transport.abort()


def completion_urls(commands: Commands) -> list[str]:
    """URLs of the gateway and of the engine behind it."""
    return [f"http://127.0.0.1:{commands.listeners[name].port}/v1/completions" for name in ("up: gateway", API)]


def test_a_client_of_java_gets_its_answers(commands: Commands) -> None:
    """LangChain4j and Spring AI send requests with it."""
    if shutil.which("java") is None:
        pytest.skip("there is no JDK here")
    program = Path(__file__).with_name("PostWithDefaults.java")
    arguments = (commands.api_key, json.dumps(COMPLETION), *completion_urls(commands))
    command = ["java", "-XX:TieredStopAtLevel=1", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [answer[:2] for answer in answers] == [["200", "HTTP_1_1"]] * 6, done.stdout
    assert len({json.loads(body)["choices"][0]["text"] for _, _, body in answers}) == 1


def test_curl_that_offers_http_2_gets_its_answers(commands: Commands) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    for url in completion_urls(commands):
        bearer = f"Authorization: Bearer {commands.api_key}"
        command = ["curl", "--http2", "-svH", bearer, "--json", json.dumps(COMPLETION), "-w", "\n", url, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert "> Upgrade: h2c" in done.stderr, done.stderr
        assert done.stderr.count("< HTTP/1.1 200 ") == 2, done.stderr
        first, second = (json.loads(line)["choices"][0]["text"] for line in done.stdout.splitlines())
        assert first == second
