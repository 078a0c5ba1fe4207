"""Output tokens per second of the standard workload through the engine in this process, without HTTP.

    python benchmarks engine.offline_throughput --trace azure_llm_2023_conv.csv --caps 8 32 64 --json result.json

All requests are there at the start; the live cap says how many of them run at once. Caps take turns, so that whatever
else the machine does falls on all of them.
"""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.results import spread, write_json
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine
from paternoster_traces import workload
from paternoster_traces.prompts import PromptSource, read_text
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.trace import TraceRow, read_trace

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


def requests(rows: Sequence[TraceRow], prompts: PromptSource, turn: str) -> list[Request]:
    """Fresh greedy requests that generate exactly their row's output length."""
    return [
        Request(
            RequestSpec(
                request_id=f"{turn}-{i}",
                prompt=prompts.make_prompt(i, row.prompt_tokens),
                params=SamplingParams(max_tokens=row.output_tokens, temperature=0.0, ignore_eos=True),
            )
        )
        for i, row in enumerate(rows)
    ]


def run(engine: Engine, work: Sequence[Request], progress: Callable[[int], object] = lambda tokens: None) -> Run:
    """Serve ``work`` from an idle engine until it is idle again; ``progress`` hears of each step's new tokens."""
    preempted = engine.scheduler.counters.preemptions
    begin = time.perf_counter()
    for request in work:
        request.spec = replace(request.spec, arrival=time.monotonic())
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


def main() -> int:
    parser = RunnerParser(__doc__, json="write every run")
    parser.add_argument("--trace", metavar="FILE", help="trace the requests are sampled from (default: synthetic)")
    parser.add_argument("--prompt-text", metavar="FILE", help="text that prompts are cut from (default: sonnets)")
    parser.add_number("--caps", [64], "live caps")
    parser.add_number("--requests", 64, "only the first N requests", most=workload.STANDARD_REQUESTS)
    parser.add_number("--repeats", 3, "runs of each cap")
    parser.add_argument("--peer", type=float, metavar="TOKENS_PER_S", help="a peer's figure, to print the ratio to it")
    EngineArgs.add_flags(parser.add_argument_group("engine"))
    options = parser.parse_args()
    options.prefix_cache = False  # a second pass over the same prompts must cost what the first did
    args = EngineArgs.from_namespace(options)
    for cap in options.caps:
        if not 1 <= cap <= args.max_num_seqs:
            parser.error(f"caps has {cap}: must be 1..{args.max_num_seqs}, which is max-num-seqs")

    rows = workload.standardize_rows(read_trace(options.trace) if options.trace else generate_rows(SYNTHETIC_ROWS))
    rows = rows[: options.requests]
    engine, tokenizer, _ = build_engine(args)
    prompts = PromptSource(tokenizer.encode(read_text(options.prompt_text)))
    run(engine, requests([TraceRow(0.0, 64, 8)] * 4, prompts, "warm"))

    prompt_tokens, output_tokens = sum(row.prompt_tokens for row in rows), sum(row.output_tokens for row in rows)
    runs: dict[int, list[Run]] = {cap: [] for cap in options.caps}
    cpu: dict[int, list[float]] = {cap: [] for cap in options.caps}
    total = output_tokens * len(runs) * options.repeats
    with tqdm(total=total, unit="token", disable=None) as bar:
        for turn in range(options.repeats):
            for cap in runs:
                engine.scheduler.live_cap = cap
                before = time.process_time()
                runs[cap].append(run(engine, requests(rows, prompts, f"{cap}-{turn}"), bar.update))
                cpu[cap].append(time.process_time() - before)

    size = f"{len(rows)} requests, {prompt_tokens:,} prompt and {output_tokens:,} output tokens"
    print(f"{size}, {options.repeats} runs each")
    for cap, done in runs.items():
        speeds = [r.tokens_per_second for r in done]
        line = f"cap {cap:3d}  {spread(speeds)} output tokens/s, {done[0].steps} steps, {spread(cpu[cap])} CPU seconds"
        if options.peer:
            line += f", {spread([speed / options.peer for speed in speeds], 2)} of the peer"
        print(line)
    write_json(
        options.json,
        {
            "workload": {"requests": len(rows), "prompt_tokens": prompt_tokens, "output_tokens": output_tokens},
            "trace": Path(options.trace).name if options.trace else "synthetic",
            "machine": platform.processor() or platform.machine(),
            "caps": {
                cap: {
                    "median_tokens_per_second": statistics.median(r.tokens_per_second for r in done),
                    "runs": [
                        asdict(r) | {"tokens_per_second": r.tokens_per_second, "cpu_seconds": seconds}
                        for r, seconds in zip(done, cpu[cap], strict=True)
                    ],
                }
                for cap, done in runs.items()
            },
        },
    )
    return 0
