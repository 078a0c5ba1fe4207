"""Finding a live cap: down from the capacity until preemptions stay under their target."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from paternoster_contract.admin import LiveConfig, LiveConfigPatch
from paternoster_contract.cli.terminal import print_json, print_text
from paternoster_contract.error_text import error_text
from paternoster_contract.http import paths
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.labels import ADMIN_PORT
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import EngineStats
from paternoster_engine.bench.offline import Offline
from paternoster_load.client import BenchClient, ServerError, drive_load
from paternoster_load.progress import show_progress
from paternoster_load.reports.report import build_report
from paternoster_load.session import check_percentiles, choose_model, make_prompts
from paternoster_load.traffic import Prompts, Traffic

Report = dict[str, Any]
Visit = Callable[[int], Awaitable[Report]]
"""Serve the traffic under a live cap and report, ``preemption_rate`` included."""


class Target(Protocol):
    """Where the traffic goes."""

    capacity: int

    async def run_at(self, cap: int) -> Report: ...


def next_cap(cap: int, decrease_percent: int) -> int:
    """The cap after this one: lower by that share, at least by 1, never below 1."""
    return max(1, min(cap - 1, cap * (100 - decrease_percent) // 100))


async def walk_caps(visit: Visit, start: int, *, target: float, decrease_percent: int, floor: int = 1) -> list[Report]:
    """Reports from ``start`` down to the first cap whose preemption rate is at most ``target``, or to ``floor``."""
    reports: list[Report] = []
    cap = start
    while True:
        reports.append(await visit(cap))
        if reports[-1]["preemption_rate"] <= target or cap <= floor:
            return reports
        cap = max(floor, next_cap(cap, decrease_percent))


def default_admin_url(url: str) -> str:
    """Where the engine at ``url`` has its admin API, unless it was given another port."""
    parts = urlsplit(url)
    return join_base_url(parts.hostname or "", ADMIN_PORT, parts.scheme)


class InProcessTarget:
    """An engine in this process."""

    def __init__(self, offline: Offline) -> None:
        self.capacity = offline.config.max_num_seqs
        self._offline = offline

    async def run_at(self, cap: int) -> Report:
        return self._offline.run(f"live cap {cap}", live_cap=cap, fresh_prompts=False, prefix_cache=False)[0]


class ServedTarget:
    """One engine over HTTP: its cap by the admin API, its preemptions from ``/stats``."""

    def __init__(
        self,
        client: BenchClient,
        traffic: Traffic,
        prompts: Prompts,
        context: int | None,
        admin_url: str,
        admin_key: str | None,
    ) -> None:
        self._client = client
        self._admin_url = admin_url.rstrip("/")
        self._traffic = traffic
        self._prompts = prompts
        self._context = context
        self._headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        self._num_taken = 0
        self.capacity = 0
        self.before = 0

    async def connect(self) -> "ServedTarget":
        """Learn capacity and present cap; raises :class:`ServerError`."""
        config = LiveConfig.model_validate(await self._request_json("GET", paths.ADMIN_CONFIG))
        self.capacity, self.before = config.capacity, config.live_cap
        return self

    async def run_at(self, cap: int) -> Report:
        options = self._traffic.options
        await self.set_cap(cap)
        before = await self._read_stats()
        rows = self._traffic.list_timed(None, self._context)
        requests = self._traffic.build_requests(rows, self._prompts, self._num_taken)
        self._num_taken += len(rows)
        begin = asyncio.get_running_loop().time()
        with show_progress(f"live cap {cap}", len(rows), quiet=options.json) as on_result:
            results = await drive_load(self._client, requests, on_result=on_result)
        duration = asyncio.get_running_loop().time() - begin
        after = await self._read_stats()
        if before.instance != after.instance:
            raise ServerError(f"{self._client.url}: started anew during the run")
        finished = after.requests_finished_total - before.requests_finished_total
        preempted = after.requests_preempted_total - before.requests_preempted_total
        settings = {"live_cap": cap, "model_id": self._client.model, "num_prompts": len(rows)}
        report = build_report(results, duration=duration, settings=settings, percentiles=options.metric_percentiles)
        return report | {
            "preemptions": after.preemptions_total - before.preemptions_total,
            "requests_preempted": preempted,
            "preemption_rate": preempted / max(finished, 1),
            "recomputed_tokens": after.recomputed_tokens_total - before.recomputed_tokens_total,
        }

    async def set_cap(self, cap: int) -> None:
        await self._request_json("PATCH", paths.ADMIN_CONFIG, LiveConfigPatch(live_cap=cap).model_dump())

    async def _read_stats(self) -> EngineStats:
        return EngineStats.model_validate(await self._request_json("GET", paths.STATS))

    async def _request_json(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        url = self._admin_url + path
        try:
            async with (
                aiohttp.ClientSession(headers=self._headers) as session,
                session.request(method, url, json=body) as response,
            ):
                if response.status != 200:
                    raise ServerError(f"{url}: HTTP {response.status}: needs an engine's admin API, and its key")
                return await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = error_text(error)
            raise ServerError(f"{url}: {why}: needs an engine with --admin-port, which --admin-url names") from error


@dataclass
class TuneSession:
    """Settings of a run, checked; :meth:`run` carries it out."""

    options: argparse.Namespace
    traffic: Traffic
    args: EngineArgs
    api_key: str | None = None
    admin_key: str | None = None

    @classmethod
    def from_namespace(
        cls, options: argparse.Namespace, args: EngineArgs, *, api_key: str | None, admin_key: str | None
    ) -> "TuneSession":
        """Check everything before anything is loaded or sent; raises :class:`ValueError`."""
        if not 0 <= options.preemption_target < 100:
            raise ValueError(f"preemption-target is {options.preemption_target}: must be a percentage, 0 to below 100")
        if not 1 <= options.decrease_percent <= 90:
            raise ValueError(f"decrease-percent is {options.decrease_percent}: must be 1 to 90")
        if options.start is not None and options.start < 1:
            raise ValueError(f"start is {options.start}: must be at least 1")
        check_percentiles(options.metric_percentiles)
        return cls(options, Traffic.from_namespace(options), args, api_key, admin_key)

    def run(self) -> list[Report]:
        """Walk down, print and return a report for each cap; the engine keeps the cap it had."""
        reports = asyncio.run(self._tune_served() if self.options.url else self._in_process())
        target = self.options.preemption_target / 100
        if self.options.json:
            chosen = choose_report(reports, target)
            print_json({"preemption_target": target, "chosen": chosen, "visits": reports}, indent=2)
        else:
            print_text(format_visits(reports, target))
        return reports

    async def _in_process(self) -> list[Report]:
        offline = Offline.load(self.options, self.args, self.traffic)
        offline.warm_up()
        return await self._walk_target(InProcessTarget(offline))

    async def _tune_served(self) -> list[Report]:
        options = self.options
        sampling = {"temperature": options.temperature, "ignore_eos": options.ignore_eos}
        client = BenchClient(options.url, api_key=self.api_key, timeout=options.timeout, sampling=sampling)
        async with client:
            context = await choose_model(client)
            prompts = await make_prompts(client, self.traffic.text, seed=options.seed)
            admin_url = options.admin_url or default_admin_url(options.url)
            served = await ServedTarget(client, self.traffic, prompts, context, admin_url, self.admin_key).connect()
            try:
                return await self._walk_target(served)
            finally:
                await served.set_cap(served.before)

    async def _walk_target(self, target: Target) -> list[Report]:
        options = self.options
        start = target.capacity if options.start is None else options.start
        if start > target.capacity:
            raise ValueError(f"start is {start}: must be at most {target.capacity}, the capacity")
        return await walk_caps(
            target.run_at,
            start,
            target=options.preemption_target / 100,
            decrease_percent=options.decrease_percent,
        )


def choose_report(reports: list[Report], target: float) -> int | None:
    """The highest cap visited whose preemption rate is within the target; None where there is none."""
    return max((report["live_cap"] for report in reports if report["preemption_rate"] <= target), default=None)


def format_visits(reports: list[Report], target: float) -> str:
    """One line a cap, then the verdict."""
    head = (
        f"{'cap':>5} {'preempted':>9} {'recomputed':>10} {'tok/s':>9} {'TTFT p50':>10} {'TTFT p99':>10} "
        f"{'ITL p50':>9} {'ITL p99':>9}   ms"
    )
    lines = [head]
    for report in reports:
        lines.append(
            f"{report['live_cap']:>5} {report['preemption_rate']:>9.1%} {report['recomputed_tokens']:>10} "
            f"{report['output_throughput']:>9.1f} {report['median_ttft_ms']:>10.0f} {report['p99_ttft_ms']:>10.0f} "
            f"{report['median_itl_ms']:>9.1f} {report['p99_itl_ms']:>9.1f}"
        )
    cap = choose_report(reports, target)
    verdict = (
        f"no cap keeps preemptions within {target:.1%}: the KV pool is too small for these requests"
        if cap is None
        else f"live cap {cap}: the highest visited that keeps preemptions within {target:.1%}"
    )
    return "\n".join([*lines, verdict])
