"""One run of ``paternoster load``: from its flags to the report."""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paternoster_engine.bench import workload
from paternoster_engine.bench.charts import load_page
from paternoster_engine.bench.client import BenchClient, BenchRequest, Outcome, RequestResult, ServerError, drive
from paternoster_engine.bench.html import write_page
from paternoster_engine.bench.prompts import PromptSource, read_text
from paternoster_engine.bench.report import build_report, detail, format_report
from paternoster_engine.bench.synthetic import generate
from paternoster_engine.bench.trace import TraceRow, read_trace

DEFAULT_PROMPTS = 100


@dataclass
class LoadSession:
    """Settings of a run, checked; :meth:`run` carries it out."""

    options: argparse.Namespace
    rows: list[TraceRow]
    text: str
    api_key: str | None = None

    @classmethod
    def from_namespace(cls, options: argparse.Namespace, *, api_key: str | None) -> "LoadSession":
        """Read the trace and check the flags before anything is sent; raises :class:`ValueError`."""
        for name in ("num_prompts", "max_concurrency", "duration", "timeout"):
            value = getattr(options, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name.replace('_', '-')} is {value}: must be above 0")
        if options.temperature < 0:
            raise ValueError(f"temperature is {options.temperature}: must be at least 0")
        _limits(options, context=None)
        rows = _rows(options)
        if options.duration and not rows[-1].arrival_s and not options.max_concurrency:
            raise ValueError("duration with requests that all arrive at once: needs max-concurrency to pace them")
        return cls(options, rows, read_text(options.prompt_text), api_key)

    async def run(self) -> dict[str, Any]:
        """Send the traffic, print and write what was asked for, and return the result document."""
        options = self.options
        sampling = {"temperature": options.temperature, "ignore_eos": options.ignore_eos}
        client = BenchClient(
            options.url, options.model or "", api_key=self.api_key, timeout=options.timeout, sampling=sampling
        )
        async with client:
            context = await self._choose_model(client)
            limits = _limits(options, context)
            rows = [limits.clip(row) for row in self.rows]
            prompts = PromptSource(await client.tokenize(self.text), seed=options.seed)
            source: Iterable[TraceRow] = workload.endless(rows) if options.duration else rows
            total = None if options.duration else len(rows)
            with _progress(total, quiet=options.json) as on_result:
                begin = time.perf_counter()
                results = await drive(
                    client,
                    _requests(source, prompts),
                    max_concurrency=options.max_concurrency,
                    duration=options.duration,
                    on_result=on_result,
                )
                duration = time.perf_counter() - begin
        report = build_report(results, duration=duration, settings=self._settings(client.model, len(results)))
        self._deliver(report, results)
        return report

    async def _choose_model(self, client: BenchClient) -> int | None:
        """Settle the client's model and return its context in tokens, where the server tells it."""
        models = await client.models()
        if not models:
            raise ServerError(f"{client.url}: serves no model")
        names = [model["id"] for model in models]
        client.model = client.model or names[0]
        if client.model not in names:
            raise ServerError(f"model {client.model}: is not served at {client.url}: must be one of {', '.join(names)}")
        return models[names.index(client.model)].get("max_model_len")

    def _settings(self, model: str, count: int) -> dict[str, Any]:
        options = self.options
        rate = options.request_rate
        return {
            "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
            "backend": "openai",
            "base_url": options.url,
            "model_id": model,
            "dataset": Path(options.trace).name if options.trace else "synthetic",
            "num_prompts": count,
            "request_rate": "trace" if rate is None else "inf" if rate == math.inf else rate,
            "burstiness": options.burstiness,
            "max_concurrency": options.max_concurrency,
            "seed": options.seed,
        }

    def _deliver(self, report: dict[str, Any], results: list[RequestResult]) -> None:
        options = self.options
        print(json.dumps(report, indent=2) if options.json else format_report(report))
        if options.save_result:
            document = {**report, **(detail(results) if options.save_detailed else {})}
            Path(options.save_result).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        if options.html:
            write_page(options.html, load_page(report, results))


def _limits(options: argparse.Namespace, context: int | None) -> workload.Limits:
    output = options.max_output_tokens
    if output is None and context is not None:
        output = max(context // 2, options.min_output_tokens)
    return workload.Limits(options.max_prompt_tokens, output, options.min_output_tokens, context)


def _rows(options: argparse.Namespace) -> list[TraceRow]:
    count, seed = options.num_prompts, options.seed
    if options.trace:
        rows = read_trace(options.trace)
        count = count or len(rows)
        if options.sample:
            rows = workload.sample(rows, count, seed=seed)
        elif count > len(rows):
            raise ValueError(f"num-prompts is {count}: must be at most {len(rows)}, the rows of {options.trace}")
        else:
            rows = rows[:count]
    else:
        rows = generate(count or DEFAULT_PROMPTS, seed=seed)
    if options.request_rate is not None:
        rows = workload.retime(rows, rate=options.request_rate, burstiness=options.burstiness, seed=seed)
    return rows


def _requests(rows: Iterable[TraceRow], prompts: PromptSource) -> Iterator[BenchRequest]:
    for index, row in enumerate(rows):
        prompt = prompts.prompt(index, row.prompt_tokens, row.prefix_blocks)
        yield BenchRequest(index, prompt, row.output_tokens, row.arrival_s)


@contextmanager
def _progress(total: int | None, *, quiet: bool) -> Iterator[Callable[[RequestResult], None]]:
    """A bar on the error stream that counts answers, and those that were none."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task("requests", total=total, failed=0)
        failed = 0

        def on_result(result: RequestResult) -> None:
            nonlocal failed
            failed += result.outcome is not Outcome.COMPLETED
            progress.update(task, advance=1, failed=failed)

        yield on_result
