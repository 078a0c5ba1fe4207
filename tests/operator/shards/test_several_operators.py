"""Operators of three shards, each a process, beside an API server in memory: of fleets that one operator had before."""

import asyncio
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.operator.kubernetes.fake_api_server import FakeApiServer, serve
from tests.operator.kubernetes.running_operator import add_fleet

from paternoster_contract import labels
from paternoster_contract.routing_rows import CONTENT_TYPE, End, Row
from paternoster_operator.cluster.buckets import assign_buckets, find_bucket, has_right_bucket
from paternoster_operator.cluster.port import Key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COUNT = 3
NAMES = [f"fleet-{number}" for number in range(9)]
NAMESPACE = "lifts"
KINDS = (labels.PLURAL, "deployments", "replicasets", "pods", "services", "poddisruptionbudgets")
PROGRAM = """
import sys
from paternoster_operator.cluster import lease
lease.LEASE_SECONDS, lease.RENEW_SECONDS, lease.RETRY_SECONDS = 6, 4, 1
from paternoster_operator.shards import ownership
ownership.FOLLOW_SECONDS = 0.5
from paternoster_contract.cli.command import main
sys.exit(main())
"""
"""The operator, with Leases that end sooner."""


def shard_of(name: str) -> int:
    return assign_buckets(COUNT)[find_bucket(Key(NAMESPACE, name))]


def find_ports(count: int) -> Sequence[int]:
    """Free ports that differ in their last digit alone; of another run's, none but by chance."""
    for first in random.sample(range(20000, 32000, 10), 1200):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return range(first, first + count)
    raise AssertionError("no ports are free")


class Operators:
    """Processes of one installation."""

    def __init__(self, server: FakeApiServer, kubeconfig: Path) -> None:
        self.server = server
        self._kubeconfig = kubeconfig
        self.ports = find_ports(10)
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, shard: int, count: int, port: int) -> None:
        """``name`` is the token that it sends."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        config["users"][0]["user"]["token"] = name
        file = self._kubeconfig.with_name(f"kubeconfig-{name}")
        file.write_text(yaml.safe_dump(config))
        words = [
            "operator", "-n", NAMESPACE, "--host=127.0.0.1", f"--port={port}", "--leader-elect",
            "--lease-namespace=system", f"--shard={shard}/{count}",
            f"--shard-url=http://127.0.0.1:{self.ports[0] // 10}{{shard}}",
        ]  # fmt: skip
        with file.with_name(f"{name}.log").open("wb") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, *words, env={"KUBECONFIG": str(file)}, stderr=log, stdout=log
            )

    async def end(self, name: str, number: signal.Signals) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        await process.wait()

    async def until(self, true: Callable[[], Any], seconds: float = 300) -> None:
        async with asyncio.timeout(seconds):
            while not true():
                for name, process in self.processes.items():
                    assert process.returncode is None, self._kubeconfig.with_name(f"{name}.log").read_text()[-3000:]
                await asyncio.sleep(0.05)

    async def edit(self, name: str) -> None:
        """Change the fleet, and wait until an operator has seen to it."""
        fleet = self.server.objects[labels.PLURAL, NAMESPACE, name]
        generation = fleet["metadata"]["generation"] + 1
        metadata = {"name": name, "namespace": NAMESPACE, "generation": generation}
        await self.server.put(labels.PLURAL, {"metadata": metadata, "spec": {**fleet["spec"]}})
        await self.until(lambda: self.status(name).get("observedGeneration") == generation)

    async def until_quiet(self) -> None:
        """Wait for a second without a write: a process that is stopped before one is sent sends it when it goes on."""
        seen = -1
        while seen != (count := sum("/leases/" not in path for _, _, path in self.server.writes)):
            seen = count
            await asyncio.sleep(1)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects[labels.PLURAL, NAMESPACE, name].get("status", {})
        return found

    def is_settled(self) -> bool:
        """Whether each fleet has a token, and each object of it its label."""
        of_fleets = [(plural, name, each) for (plural, _, name), each in self.server.objects.items() if plural in KINDS]
        return len(of_fleets) == len(KINDS) * len(NAMES) and all(
            has_right_bucket(Key(NAMESPACE, name), each["metadata"])
            and (plural != labels.PLURAL or self.status(name).get("shardToken"))
            for plural, name, each in of_fleets
        )

    def list_writers(self, name: str) -> list[str]:
        """Who changed the fleet, its children or its status, in order; a label is no change."""
        of_fleet = (f"/deployments/{name}", f"/{labels.PLURAL}/{name}/status")
        applied = [(token, path) for token, kind, path in self.server.writes if kind.endswith("apply-patch+yaml")]
        writers = [token for token, path in applied if path.endswith(of_fleet)]
        return [token for index, token in enumerate(writers) if writers[index - 1 : index] != [token]]

    async def read_routes(self, port: int) -> set[str]:
        """Names in the routing table there; of none while it is not whole."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/routes") as answer:
                return {*(await answer.json())["models"]} if answer.status == 200 else set()
        except aiohttp.ClientError:
            return set()

    async def find_lacking(self, port: int) -> set[str]:
        """Names for which a gateway would answer 404 that has its table from there; none while it gets no table."""
        headers = {"Accept": CONTENT_TYPE}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(f"http://127.0.0.1:{port}/routes") as answer,
            ):
                *rows, end = (await answer.read()).splitlines()
                if answer.status != 200:
                    return set()
        except (aiohttp.ClientError, ValueError):
            return set()
        names = {Row.model_validate_json(row).name for row in rows}
        return {*NAMES} - names - {*End.model_validate_json(end).unread}

    async def until_routed(self, port: int) -> None:
        async with asyncio.timeout(300):
            while await self.read_routes(port) != {*NAMES}:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def installation(folder: Path) -> AsyncIterator[Operators]:
    """Fleets with a pod each that were made without shards."""
    server = FakeApiServer()
    async with serve(server, folder) as kubeconfig:
        operators = Operators(server, kubeconfig)
        for name in NAMES:
            await add_fleet(server, NAMESPACE, name)
        try:
            yield operators
        finally:
            for name in [*operators.processes]:
                await operators.end(name, signal.SIGKILL)


async def start_shards(operators: Operators) -> None:
    for shard in range(COUNT):
        await operators.start(f"shard-{shard}", shard, COUNT, operators.ports[shard])


async def test_shards_take_over_what_one_operator_made_and_a_killed_shard_is_replaced(tmp_path: Path) -> None:
    async with installation(tmp_path) as operators:
        server = operators.server
        await operators.start("alone", 0, 1, operators.ports[9])
        await operators.until(lambda: all(operators.status(name).get("observedGeneration") for name in NAMES))
        assert not any(labels.BUCKET in str(each) for each in server.objects.values()), "one shard needs no label"
        assert ("configmaps", "system", "paternoster-operator-shards") not in server.objects
        templates = {name: server.objects["deployments", NAMESPACE, name]["spec"].get("template") for name in NAMES}
        server.writes.clear()

        await start_shards(operators)
        await operators.edit(NAMES[0])
        await operators.end("alone", signal.SIGTERM)
        await operators.until(operators.is_settled)
        for name in NAMES:
            await operators.edit(name)
            writers = [each for each in operators.list_writers(name) if each != "alone"]
            # Shard 0 has a fleet until its objects are labelled, and then lets go of it.
            assert writers in ([f"shard-{shard_of(name)}"], ["shard-0", f"shard-{shard_of(name)}"])
            assert server.objects["deployments", NAMESPACE, name]["spec"].get("template") == templates[name], (
                "pods would start anew"
            )
        for shard in range(COUNT):
            await operators.until_routed(operators.ports[shard])

        killed = shard_of(NAMES[0])
        tokens = {name: operators.status(name)["shardToken"] for name in NAMES}
        await operators.start("standby", killed, COUNT, operators.ports[9])
        await operators.until_routed(operators.ports[9])
        server.writes.clear()
        await operators.end(f"shard-{killed}", signal.SIGKILL)
        await operators.edit(NAMES[0])
        for name in NAMES:
            is_killed = shard_of(name) == killed
            await operators.edit(name)
            assert (operators.status(name)["shardToken"] > tokens[name]) == is_killed
            writers = [each for each in operators.list_writers(name) if each != f"shard-{killed}"]
            assert writers in ([], ["standby" if is_killed else f"shard-{shard_of(name)}"])
        # The killed one answers no more: the others' rows of it stand.
        for shard in {*range(COUNT)} - {killed}:
            await operators.until_routed(operators.ports[shard])


async def test_a_shard_that_was_stopped_changes_nothing_once_another_process_has_it(tmp_path: Path) -> None:
    async with installation(tmp_path) as operators:
        await start_shards(operators)
        stopped = shard_of(NAMES[0])
        await operators.start("standby", stopped, COUNT, operators.ports[9])
        await operators.until(operators.is_settled)
        await operators.until_quiet()
        operators.processes[f"shard-{stopped}"].send_signal(signal.SIGSTOP)
        await operators.edit(NAMES[0])
        operators.server.writes.clear()
        operators.processes[f"shard-{stopped}"].send_signal(signal.SIGCONT)
        for _ in range(5):
            for name in NAMES:
                await operators.edit(name)
            await asyncio.sleep(1)
        for name in NAMES:
            assert operators.list_writers(name) == [
                "standby" if shard_of(name) == stopped else f"shard-{shard_of(name)}"
            ]


async def test_no_model_is_lost_while_three_shards_become_two(tmp_path: Path) -> None:
    """Pods of both numbers run side by side; of each, gateways read the table."""
    async with installation(tmp_path) as operators:
        await start_shards(operators)
        await operators.until(operators.is_settled)
        for port in operators.ports[:COUNT]:
            await operators.until_routed(port)
        lacking: set[str] = set()

        async def read_tables() -> None:
            while True:
                for port in operators.ports[:COUNT]:
                    lacking.update(await operators.find_lacking(port))
                await asyncio.sleep(0.1)

        reading = asyncio.create_task(read_tables())
        for shard in (1, 0):
            await operators.end(f"shard-{shard}", signal.SIGTERM)
            await operators.start(f"of-two-{shard}", shard, 2, operators.ports[shard])
            await asyncio.sleep(8)
        await operators.end("shard-2", signal.SIGTERM)
        for name in NAMES:
            await operators.edit(name)
        for port in operators.ports[:2]:
            await operators.until_routed(port)
        assert not reading.done()
        reading.cancel()
        assert lacking == set()


async def test_a_label_that_somebody_edits_brings_the_fleet_to_no_other_shard(tmp_path: Path) -> None:
    async with installation(tmp_path) as operators:
        server = operators.server
        await start_shards(operators)
        await operators.until(operators.is_settled)
        server.writes.clear()
        for name in NAMES:
            other = next(b for b in range(64) if assign_buckets(COUNT)[b] != shard_of(name))
            for plural in (labels.PLURAL, "deployments", "pods"):
                document = server.objects[plural, NAMESPACE, name]
                found = {**document["metadata"].get("labels", {}), labels.BUCKET: str(other)}
                await server.put(plural, {"metadata": {"name": name, "namespace": NAMESPACE, "labels": found}})
        await operators.until(operators.is_settled)
        for name in NAMES:
            await operators.edit(name)
            assert operators.list_writers(name) == [f"shard-{shard_of(name)}"]
