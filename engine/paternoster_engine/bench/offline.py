"""An engine in this process with its traffic: what ``paternoster bench`` offline, tune and compare have in common."""

import argparse
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.bench.batching import ModeName, make_scheduler
from paternoster_engine.bench.in_process import InProcess
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.stats import Counters
from paternoster_engine.engine import Engine
from paternoster_load.progress import show_progress
from paternoster_load.reports.goodput import Goodput
from paternoster_load.reports.report import build_report
from paternoster_load.results import RequestResult
from paternoster_load.session import Pace
from paternoster_load.traffic import Traffic
from paternoster_traces import workload
from paternoster_traces.prompts import PromptSource

WARM_UP = 4
"""Requests sent first and not counted: the first steps allocate."""


@dataclass
class Offline:
    """One loaded model, and requests for it. Every run has a scheduler of its own: nothing is left from the last."""

    options: argparse.Namespace
    traffic: Traffic
    engine: Engine
    prompts: PromptSource
    model: str
    eos_token_ids: tuple[int, ...]
    num_taken: int = 0
    """Request numbers used so far."""

    @classmethod
    def load(cls, options: argparse.Namespace, args: EngineArgs, traffic: Traffic) -> "Offline":
        """Load the model; raises :class:`ValueError`."""
        from paternoster_engine.build import build_engine

        engine, tokenizer, config = build_engine(args)
        prompts = PromptSource(tokenizer.encode(traffic.text), seed=options.seed)
        return cls(options, traffic, engine, prompts, config.name, tuple(tokenizer.eos_token_ids))

    @property
    def config(self) -> SchedulerConfig:
        return self.engine.scheduler.config

    def warm_up(self) -> None:
        rows = self.traffic.list_timed(float("inf"), self.config.max_model_len)
        self._in_process(self.config).serve(self.traffic.warm_up(rows, self.prompts, WARM_UP))

    def run(
        self,
        title: str,
        *,
        pace: Pace = Pace(None, None),  # noqa: B008 - frozen
        live_cap: int | None = None,
        goodput: Goodput | None = None,
        fresh_prompts: bool = True,
        mode: ModeName = "continuous",
        **changes: Any,
    ) -> tuple[dict[str, Any], list[RequestResult]]:
        """Serve the traffic once and report. ``changes`` are to the scheduler's configuration.

        Without ``fresh_prompts`` the requests are those of every other such run.
        """
        options = self.options
        config = self.config.replace(**changes)
        rows = self.traffic.list_timed(pace.request_rate, config.max_model_len)
        first = self.num_taken if fresh_prompts else 0
        self.num_taken += len(rows)
        in_process = self._in_process(config, live_cap, mode)
        source = workload.repeat_rows(rows) if options.duration else rows
        requests = self.traffic.build_requests(source, self.prompts, first)
        with show_progress(title, None if options.duration else len(rows), quiet=options.json) as on_result:
            begin = time.perf_counter()
            results = in_process.serve(
                requests, max_concurrency=pace.max_concurrency, duration=options.duration, on_result=on_result
            )
            duration = time.perf_counter() - begin
        settings = {
            "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
            "backend": "in-process",
            "base_url": "this process",
            "model_id": self.model,
            "dataset": Path(self.traffic.source).name,
            "num_prompts": len(results),
            "burstiness": options.burstiness,
            "seed": options.seed,
            **pace.to_settings(),
            "mode": mode,
            "max_num_seqs": config.max_num_seqs,
            "live_cap": in_process.engine.scheduler.live_cap,
            "kv_blocks": config.num_blocks,
        }
        report = build_report(
            results,
            duration=duration,
            settings=settings,
            percentiles=options.metric_percentiles,
            goodput=goodput,
        )
        return report | engine_numbers(in_process), results

    def _in_process(
        self, config: SchedulerConfig, live_cap: int | None = None, mode: ModeName = "continuous"
    ) -> InProcess:
        options = self.options
        engine = Engine(make_scheduler(mode, config, live_cap), self.engine.runner)
        return InProcess(
            engine, temperature=options.temperature, ignore_eos=options.ignore_eos, eos_token_ids=self.eos_token_ids
        )


def engine_numbers(in_process: InProcess) -> dict[str, Any]:
    """What only the engine counts of a run."""
    counters = in_process.engine.scheduler.counters
    steps = in_process.steps
    return {
        "steps": steps,
        "output_tokens_per_step": counters.generation_tokens / steps if steps else 0.0,
        "preemptions": counters.preemptions,
        "requests_preempted": counters.requests_preempted,
        "preemption_rate": preemption_rate(counters),
        "recomputed_tokens": counters.recomputed_tokens,
    }


def preemption_rate(counters: Counters) -> float:
    """Distinct requests preempted over requests finished, as the scaling law has it."""
    return counters.requests_preempted / max(sum(counters.finished.values()), 1)
