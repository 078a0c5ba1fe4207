"""A local session from start to end on a terminal: shows, records, follows the manifest, drains on Ctrl-C."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from rich.live import Live
from rich.logging import RichHandler

from paternoster_contract.cli.console import QuotingConsole
from paternoster_contract.cli.logs import TextFormatter, log_through
from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import LoopDecision
from paternoster_operator.cluster.port import Event, Key
from paternoster_operator.local.manifest_watch import ManifestWatch
from paternoster_operator.local.session import LocalSession, SessionError
from paternoster_operator.terminal.snapshot import Snapshot
from paternoster_operator.terminal.view import render_view

KILLED = 130
"""Exit code after a second signal."""


async def run_interactive_session(
    session: LocalSession,
    watch: ManifestWatch,
    resources: Sequence[LLMDeployment],
    *,
    live: bool,
    record: Path | None,
) -> int:
    """Run until SIGINT or SIGTERM, then drain; a second one ends everything at once. Returns the exit code."""
    console = QuotingConsole(soft_wrap=not live)
    # The live view redraws the terminal: records must pass through its console.
    handler = RichHandler(console=console, show_path=False)
    handler.setFormatter(TextFormatter("%(message)s"))
    log_through(handler)
    end = _End(session, console)
    try:
        await session.start(resources)
    except SessionError as error:
        console.print(f"paternoster up: {error}", style="red")
        return 1
    console.print(f"endpoint {session.endpoint}/v1   logs {session.logs}")
    try:
        with ExitStack() as stack:
            lines = stack.enter_context(record.open("a", encoding="utf-8")) if record is not None else None
            screen = stack.enter_context(Live(console=console, refresh_per_second=4, transient=True)) if live else None
            await _follow_session(session, watch, console, lines, end, screen)
    finally:
        console.print("draining: engines finish their requests (again to end at once)")
        await session.close()
    console.print("all ended")
    return KILLED if end.at_once else 0


async def _follow_session(
    session: LocalSession,
    watch: ManifestWatch,
    console: QuotingConsole,
    lines: IO[str] | None,
    end: "_End",
    screen: Live | None,
) -> None:
    story = _Story(session)
    last_record = 0.0
    while not end.requested.is_set():
        _reread_manifests(session, watch, console)
        snapshots = story.take_snapshots()
        if screen is not None:
            screen.update(render_view(session.endpoint, snapshots, story.list_reasons(), story.list_events()))
        else:
            for when, name, event in story.new_events():
                console.print(f"{when[11:19]}  {name}  {event.reason}: {event.message}")
            for line in story.new_replica_lines(snapshots):
                console.print(line)
        if lines is not None and time.monotonic() - last_record >= 1:
            last_record = time.monotonic()
            lines.write(json.dumps(story.record_line(snapshots)) + "\n")
            lines.flush()
        try:
            async with asyncio.timeout(0.5):
                await end.requested.wait()
        except TimeoutError:
            continue


def _reread_manifests(session: LocalSession, watch: ManifestWatch, console: QuotingConsole) -> None:
    if not watch.has_changed():
        return
    try:
        resources, secrets = watch.read(), watch.read_secrets()
    except InvalidManifest as invalid:
        console.print("the edit is refused, and the fleet goes on as it was:", style="red")
        for line in invalid.errors:
            console.print(f"  {line}")
        return
    session.cluster.put_secrets(secrets)
    for line in session.set_resources(resources):
        console.print(line)


class _Story:
    """What has been printed already."""

    def __init__(self, session: LocalSession) -> None:
        self._session = session
        self._printed_events: dict[Key, int] = {}
        self._printed_changes: dict[Key, int] = {}
        self._printed_replicas: dict[str, tuple[int, ...]] = {}

    def take_snapshots(self) -> list[Snapshot]:
        operator = self._session.operator
        found = ((key, operator.find_fleet(key)) for key in self._session.cluster.list())
        return [Snapshot.from_fleet(key, fleet) for key, fleet in found if fleet is not None]

    def list_events(self) -> list[tuple[str, str, Event]]:
        """All events in memory, oldest first."""
        by_fleet = self._session.cluster.events
        return sorted(
            ((when, key.name, event) for key, events in by_fleet.items() for when, event in events), key=lambda e: e[0]
        )

    def list_reasons(self) -> list[tuple[str, LoopDecision]]:
        """The last decision of each loop of each LLMDeployment, that it changed nothing included."""
        operator = self._session.operator
        found = ((key, operator.find_fleet(key)) for key in self._session.cluster.list())
        decisions = [
            (key.name, fleet.memory.last_decision)
            for key, fleet in found
            if fleet is not None and fleet.memory.last_decision
        ]
        return [(name, made) for name, decision in decisions for made in reversed(list(decision.values()))]

    def new_events(self) -> Iterator[tuple[str, str, Event]]:
        for key in self._session.cluster.events:
            total = self._session.cluster.num_events[key]
            new = total - self._printed_events.get(key, 0)
            self._printed_events[key] = total
            for when, event in list(self._session.cluster.events[key])[-new:] if new else []:
                yield when, key.name, event

    def new_replica_lines(self, snapshots: list[Snapshot]) -> Iterator[str]:
        for snapshot in snapshots:
            counts = (snapshot.ready, snapshot.desired, snapshot.pending, snapshot.draining)
            if self._printed_replicas.get(snapshot.name) != counts:
                self._printed_replicas[snapshot.name] = counts
                yield (
                    f"{time.strftime('%H:%M:%S')}  {snapshot.name}  {snapshot.ready} of {snapshot.desired} replicas "
                    f"ready, {snapshot.pending} coming, {snapshot.draining} draining"
                )

    def record_line(self, snapshots: list[Snapshot]) -> dict[str, object]:
        """A line of the record."""
        documents = []
        for snapshot in snapshots:
            key = Key(snapshot.namespace, snapshot.name)
            fleet = self._session.operator.find_fleet(key)
            if fleet is None:
                continue
            new = fleet.memory.num_changes - self._printed_changes.get(key, 0)
            self._printed_changes[key] = fleet.memory.num_changes
            documents.append(snapshot.to_document(fleet.memory.changes[-new:] if new else ()))
        return {"time": time.time(), "endpoint": self._session.endpoint, "deployments": documents}


class _End:
    """SIGINT and SIGTERM: the first asks to drain, the second kills."""

    def __init__(self, session: LocalSession, console: QuotingConsole) -> None:
        self.requested = asyncio.Event()
        self.at_once = False
        self._session = session
        self._console = console
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self.requested.is_set():
            self.at_once = True
            self._console.print("ending at once", style="red")
            self._session.kill()
        self.requested.set()
