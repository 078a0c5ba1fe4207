"""Continuous against static batching on this engine: same requests, same weights, same kernels, same process.

    python benchmarks/static_vs_continuous.py --trace azure_llm_2023_conv.csv --json result.json

All requests are there at the start. Static batching fills a batch of ``--max-num-seqs`` and lets it drain whole;
continuous batching refills it at every step. The two take turns, first one then the other going first, so that
whatever else the machine does falls on both.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.bench import workload
from paternoster_engine.bench.prompts import PromptSource, read_text
from paternoster_engine.bench.synthetic import generate
from paternoster_engine.bench.trace import TraceRow, read_trace
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine

MODES = ("static", "continuous")
SYNTHETIC_ROWS = 1000


@dataclass(frozen=True)
class Run:
    """One pass over all requests."""

    seconds: float
    steps: int
    output_tokens: int
    preemptions: int
    mean_latency: float
    """Seconds from the start to a request's last token, averaged over requests."""

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds

    @property
    def tokens_per_step(self) -> float:
        return self.output_tokens / self.steps


def requests(rows: Sequence[TraceRow], prompts: PromptSource, turn: str) -> list[Request]:
    """Fresh greedy requests that generate exactly their row's output length."""
    return [
        Request(
            request_id=f"{turn}-{i}",
            prompt=prompts.prompt(i, row.prompt_tokens),
            params=SamplingParams(max_tokens=row.output_tokens, temperature=0.0, ignore_eos=True),
        )
        for i, row in enumerate(rows)
    ]


def run(engine: Engine, work: Sequence[Request], progress: Callable[[int], object] = lambda tokens: None) -> Run:
    """Serve ``work`` from an idle engine until it is idle again; ``progress`` hears of each step's new tokens."""
    preempted = engine.scheduler.counters.preemptions
    begin = time.perf_counter()
    for request in work:
        request.arrival = time.monotonic()
        engine.scheduler.add(request)
    steps = 0
    ends = []
    while engine.scheduler.has_work:
        outputs = engine.step()
        steps += 1
        progress(len(outputs))
        ends += [time.perf_counter() - begin for output in outputs if output.finish_reason is FinishReason.LENGTH]
    if len(ends) < len(work):
        raise RuntimeError(f"{len(work) - len(ends)} of {len(work)} requests did not reach their length: see the log")
    return Run(
        seconds=time.perf_counter() - begin,
        steps=steps,
        output_tokens=sum(len(request.output) for request in work),
        preemptions=engine.scheduler.counters.preemptions - preempted,
        mean_latency=statistics.mean(ends),
    )


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median, and least to most."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(description="Throughput of continuous against static batching on the same engine.")
    parser.add_argument("--trace", metavar="FILE", help="trace the 64 requests are sampled from (default: synthetic)")
    parser.add_argument("--prompt-text", metavar="FILE", help="text that prompts are cut from (default: sonnets)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each mode (default: 3)")
    parser.add_argument("--json", metavar="FILE", help="write every run and the ratio")
    EngineArgs.add_flags(parser.add_argument_group("engine"))
    parser.set_defaults(max_num_seqs=16)
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"repeats is {options.repeats}: must be at least 1")

    rows = workload.standard(read_trace(options.trace) if options.trace else generate(SYNTHETIC_ROWS))
    options.prefix_cache = False  # a second pass over the same prompts must cost what the first did
    engines: dict[str, Engine] = {}
    for mode in MODES:
        options.mode = mode
        engines[mode], tokenizer, _ = build_engine(EngineArgs.from_namespace(options))
    prompts = PromptSource(tokenizer.encode(read_text(options.prompt_text)))
    warm_up = [TraceRow(0.0, 64, 8)] * 4
    for mode in MODES:
        run(engines[mode], requests(warm_up, prompts, f"warm-{mode}"))

    runs: dict[str, list[Run]] = {mode: [] for mode in MODES}
    for turn in range(options.repeats):
        for mode in MODES if turn % 2 == 0 else MODES[::-1]:
            result = run(engines[mode], requests(rows, prompts, f"{mode}-{turn}"))
            runs[mode].append(result)
            print(f"run {turn + 1} {mode:<10} {result.tokens_per_second:8.1f} tokens/s", file=sys.stderr)

    pairs = zip(runs["continuous"], runs["static"], strict=True)
    ratios = [continuous.tokens_per_second / static.tokens_per_second for continuous, static in pairs]
    prompt_tokens = sum(row.prompt_tokens for row in rows)
    output_tokens = sum(row.output_tokens for row in rows)
    size = f"{len(rows)} requests, {prompt_tokens:,} prompt and {output_tokens:,} output tokens"
    print(f"{size}, {options.repeats} runs each")
    for mode in MODES:
        done = runs[mode]
        print(
            f"{mode:<10}  {spread([r.tokens_per_second for r in done])} output tokens/s, "
            f"{done[0].steps} steps of {done[0].tokens_per_step:.2f} output tokens, "
            f"mean latency {spread([r.mean_latency for r in done])} s, {done[0].preemptions} preemptions"
        )
    print(f"continuous / static = {spread(ratios, 2)} in output tokens/s")
    if options.json:
        document = {
            "workload": {"requests": len(rows), "prompt_tokens": prompt_tokens, "output_tokens": output_tokens},
            "trace": Path(options.trace).name if options.trace else "synthetic",
            "max_num_seqs": int(options.max_num_seqs),
            "machine": platform.processor() or platform.machine(),
            "runs": {
                mode: [asdict(r) | {"tokens_per_second": r.tokens_per_second} for r in runs[mode]] for mode in MODES
            },
            "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
        }
        Path(options.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
