"""Ports that a session has chosen: no other socket can have them, whether a program listens, has ended, or begins."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paternoster_operator.local.ports import HOST, PortPool, listen_on, reserve_port
from paternoster_operator.local.process import open_log

OPTIONS: list[tuple[int, ...]] = [
    (),
    (socket.SO_REUSEADDR,),
    (socket.SO_REUSEPORT,),
    (socket.SO_REUSEADDR, socket.SO_REUSEPORT),
]
LISTEN = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.listen(); print('on', flush=True); input()"


ATTACK = """
import os, socket, sys
if os.getuid() == 0:
    os.setgroups([])
    os.setuid(65534)
for options in {options}:
    for address in ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as other:
            for option in options:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                other.bind((address, {port}))
                other.listen()
            except OSError:
                continue
            print(options, address)
"""


def taken_by_another(port: int) -> list[str]:
    """Every way in which another user's socket could listen where clients of ``port`` go.

    Where this process cannot become another user, those of the same user that set SO_REUSEPORT are left out.
    """
    options = [each for each in OPTIONS if os.getuid() == 0 or socket.SO_REUSEPORT not in each]
    code = ATTACK.format(options=[tuple(map(int, each)) for each in options], port=port)
    return subprocess.run(
        [sys.executable, "-ISc", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def test_a_port_is_reserved_before_while_and_after_a_program_listens() -> None:
    port = reserve_port()
    for _ in range(2):
        assert not accepts(port.number)
        assert taken_by_another(port.number) == []
        run = [sys.executable, "-c", LISTEN, str(port.fileno())]
        with subprocess.Popen(
            run, pass_fds=[port.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout.readline() == "on\n"
            with socket.create_connection((HOST, port.number)):
                assert accepts(port.number)
            assert taken_by_another(port.number) == []
            program.communicate("\n")
        assert taken_by_another(port.number) == []
        port.refuse_clients()
    port.close()
    assert taken_by_another(port.number)


def test_sessions_of_one_user_share_no_port() -> None:
    port = reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, port.number))
    port.close()


def test_a_port_of_an_engine_that_is_gone_serves_only_this_sessions_engines() -> None:
    pool = PortPool()
    first, second = pool.acquire(), pool.acquire()
    assert first.number != second.number
    pool.release(first)
    assert taken_by_another(first.number) == []
    assert pool.acquire() is first
    pool.release(first)
    pool.close()
    assert taken_by_another(first.number)
    second.close()


def test_a_released_port_answers_for_the_next_engine() -> None:
    """Its program's end and its pod's both refuse clients: the second finds a socket that does not listen."""
    pool = PortPool()
    port = pool.acquire()
    with socket.socket(fileno=os.dup(port.fileno())) as program:
        program.listen()
    port.refuse_clients()
    pool.release(port)
    assert pool.acquire() is port
    with socket.socket(fileno=os.dup(port.fileno())) as program:
        program.listen()
        with socket.create_connection((HOST, port.number), timeout=10) as client:
            accepted, _ = program.accept()
            with accepted:
                client.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
    port.close()


def test_clients_of_the_endpoint_wait_while_its_program_starts_again() -> None:
    port = listen_on(0)
    assert accepts(port.number)
    port.refuse_clients()
    assert accepts(port.number)
    assert taken_by_another(port.number) == []
    port.stop_listening()
    assert not accepts(port.number)
    port.close()


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server((HOST, 0)) as other_server, pytest.raises(OSError, match="in use"):
        listen_on(other_server.getsockname()[1])
    with pytest.raises(OverflowError):
        listen_on(70_000)


@pytest.mark.parametrize("planted", ["symlink", "hard link", "pipe", "folder"])
def test_a_log_is_not_written_into_what_another_user_planted(tmp_path: Path, planted: str) -> None:
    """The folder of logs may be one that every user writes to."""
    precious, log = tmp_path / "precious", tmp_path / "gateway.log"
    precious.write_text("")
    precious.chmod(0o644)
    if planted == "symlink":
        log.symlink_to(precious)
    elif planted == "hard link":
        log.hardlink_to(precious)
    elif planted == "pipe":
        os.mkfifo(log)
    else:
        log.mkdir()
    with pytest.raises(OSError, match=r"gateway\.log"):
        open_log(log)
    assert precious.stat().st_mode & 0o777 == 0o644
