"""One run of ``paternoster bench serve``: from its flags to the report, at one pace or at several."""

import argparse
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

from paternoster_contract.cli.terminal import print_json, print_text
from paternoster_load.client import BenchClient, ServerError, drive_load
from paternoster_load.progress import show_progress
from paternoster_load.reports.charts import load_page
from paternoster_load.reports.goodput import Goodput
from paternoster_load.reports.html import write_page
from paternoster_load.reports.report import build_report, format_report, list_details
from paternoster_load.reports.sweep import format_sweep, sweep_page
from paternoster_load.results import RequestResult
from paternoster_load.traffic import Prompts, Traffic
from paternoster_load.word_prompts import WordPrompts, tokens_per_word
from paternoster_traces import workload
from paternoster_traces.prompts import PromptSource
from paternoster_traces.trace import TraceRow


@dataclass(frozen=True, slots=True)
class Pace:
    """One point of a sweep."""

    request_rate: float | None
    """Requests per second; None is as recorded."""
    max_concurrency: int | None

    @classmethod
    def list_points(cls, options: argparse.Namespace) -> "list[Pace]":
        """Every combination the flags ask for; raises :class:`ValueError`."""
        for concurrency in options.max_concurrency or ():
            if concurrency < 1:
                raise ValueError(f"max-concurrency is {concurrency}: must be above 0")
        pairs = product(options.request_rate or [None], options.max_concurrency or [None])
        return [cls(rate, concurrency) for rate, concurrency in pairs]

    def to_settings(self) -> dict[str, Any]:
        rate = self.request_rate
        return {
            "request_rate": "trace" if rate is None else "inf" if rate == math.inf else rate,
            "max_concurrency": self.max_concurrency,
        }


@dataclass
class LoadSession:
    """Settings of a run, checked; :meth:`run` carries it out."""

    options: argparse.Namespace
    traffic: Traffic
    paces: list[Pace]
    goodput: Goodput | None = None
    api_key: str | None = None

    @classmethod
    def from_namespace(cls, options: argparse.Namespace, *, api_key: str | None) -> "LoadSession":
        """Read the trace and check the flags before anything is sent; raises :class:`ValueError`."""
        if not options.timeout > 0:
            raise ValueError(f"timeout is {options.timeout}: must be above 0")
        if options.num_warmups < 0:
            raise ValueError(f"num-warmups is {options.num_warmups}: must be at least 0")
        check_percentiles(options.metric_percentiles)
        traffic = Traffic.from_namespace(options)
        paces = Pace.list_points(options)
        for pace in paces:
            traffic.list_timed(pace.request_rate)
        goodput = Goodput.parse(options.goodput) if options.goodput else None
        return cls(options, traffic, paces, goodput, api_key)

    async def run(self) -> list[dict[str, Any]]:
        """Send the traffic, print and write what was asked for, and return a result document for each pace."""
        options = self.options
        async with self._open_client() as client:
            context = await choose_model(client)
            prompts = await make_prompts(client, self.traffic.text, seed=options.seed)
            if options.num_warmups:
                await self._warm_up(client, self.traffic.list_timed(math.inf, context), prompts)
            runs = []
            for number, pace in enumerate(self.paces):
                # New prompts at each pace, or the prefix cache would serve the later ones.
                first = number * len(self.traffic.rows)
                runs.append(await self._run_at(pace, client, context, prompts, first))
                if len(self.paces) > 1 and not options.json:
                    print_text(format_report(runs[-1][0]))
        self._write_reports([report for report, _ in runs], [results for _, results in runs])
        return [report for report, _ in runs]

    async def measure_run(self, title: str, first: int) -> tuple[dict[str, Any], list[RequestResult]]:
        """One run at the first pace with requests numbered from ``first``; ``title`` is for the progress bar."""
        async with self._open_client() as client:
            context = await choose_model(client)
            prompts = await make_prompts(client, self.traffic.text, seed=self.options.seed)
            return await self._run_at(self.paces[0], client, context, prompts, first, title)

    def _open_client(self) -> BenchClient:
        options = self.options
        sampling = {"temperature": options.temperature, "ignore_eos": options.ignore_eos}
        return BenchClient(
            options.url, options.model or "", api_key=self.api_key, timeout=options.timeout, sampling=sampling
        )

    async def _warm_up(self, client: BenchClient, rows: list[TraceRow], prompts: Prompts) -> None:
        count = self.options.num_warmups
        with show_progress("warm-up", count, quiet=self.options.json) as on_result:
            await drive_load(client, self.traffic.warm_up(rows, prompts, count), max_concurrency=8, on_result=on_result)

    async def _run_at(
        self,
        pace: Pace,
        client: BenchClient,
        context: int | None,
        prompts: Prompts,
        first: int,
        title: str = "requests",
    ) -> tuple[dict[str, Any], list[RequestResult]]:
        options = self.options
        rows = self.traffic.list_timed(pace.request_rate, context)
        source: Iterable[TraceRow] = workload.repeat_rows(rows) if options.duration else rows
        total = None if options.duration else len(rows)
        with show_progress(title, total, quiet=options.json) as on_result:
            begin = time.perf_counter()
            results = await drive_load(
                client,
                self.traffic.build_requests(source, prompts, first),
                max_concurrency=pace.max_concurrency,
                duration=options.duration,
                on_result=on_result,
            )
            duration = time.perf_counter() - begin
        settings = self._describe_settings(client.model, len(results)) | pace.to_settings()
        report = build_report(
            results,
            duration=duration,
            settings=settings,
            percentiles=options.metric_percentiles,
            goodput=self.goodput,
        )
        return report, results

    def _describe_settings(self, model: str, count: int) -> dict[str, Any]:
        options = self.options
        return {
            "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
            "backend": "openai",
            "base_url": options.url,
            "model_id": model,
            "dataset": Path(self.traffic.source).name,
            "num_prompts": count,
            "request_rate": None,
            "burstiness": options.burstiness,
            "max_concurrency": None,
            "seed": options.seed,
        }

    def _write_reports(self, reports: list[dict[str, Any]], results: list[list[RequestResult]]) -> None:
        options = self.options
        single = len(reports) == 1
        if options.json:
            print_json(reports[0] if single else {"sweep": reports}, indent=2)
        else:
            print_text(format_report(reports[0]) if single else format_sweep(reports))
        if options.save_result:
            whole = [
                {**report, **(list_details(of) if options.save_detailed else {})}
                for report, of in zip(reports, results, strict=True)
            ]
            text = json.dumps(whole[0] if single else {"sweep": whole}, indent=2) + "\n"
            Path(options.save_result).write_text(text, encoding="utf-8")
        if options.html:
            write_page(options.html, load_page(reports[0], results[0]) if single else sweep_page(reports))


def check_percentiles(percentiles: Sequence[float]) -> None:
    """Raise :class:`ValueError` for what is no percentile."""
    for value in percentiles:
        if not 0 < value <= 100:
            raise ValueError(f"metric-percentiles is {value:g}: must be above 0 and at most 100")


async def choose_model(client: BenchClient) -> int | None:
    """Settle the client's model and return its context in tokens, where the server reports it."""
    models = await client.list_models()
    if not models:
        raise ServerError(f"{client.url}: serves no model")
    names = [model["id"] for model in models]
    client.model = client.model or names[0]
    if client.model not in names:
        raise ServerError(f"model {client.model}: is not served at {client.url}: must be one of {', '.join(names)}")
    return models[names.index(client.model)].get("max_model_len")


async def make_prompts(client: BenchClient, text: str, *, seed: int) -> Prompts:
    """Prompts as token ids, or as words where the server does not tokenize for its clients."""
    try:
        return PromptSource(await client.tokenize(text), seed=seed)
    except ServerError:
        return WordPrompts(text, await tokens_per_word(client, text), seed=seed)
