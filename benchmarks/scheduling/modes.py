"""Static, dynamic and continuous batching on traces of different length spread (Orca, OSDI'22)."""

import random
import statistics
from collections.abc import Sequence

from paternoster_engine.bench.batching import ModeName
from paternoster_traces.trace import TraceRow
from scheduling.experiment import Context
from scheduling.serving import percentile, serve
from scheduling.table import Cell, Table
from scheduling.traffic import at_once, at_times, poisson

SLOTS = 32
PROMPT = 16
"""So short that the prompts of a whole batch fit into one step: then the closed form is exact."""
REQUESTS = 512
LOAD = 0.7
"""Share of the throughput of continuous batching at which requests come in the second table."""
BATCH_WAIT = 0.5
"""Seconds that a dynamic batch waits for its last request."""
BOTH: tuple[ModeName, ...] = ("static", "continuous")
ALL: tuple[ModeName, ...] = ("static", "dynamic", "continuous")


def static_utilisation(lengths: Sequence[int], slots: int) -> float:
    """Share of the slots that static batching fills: sum L over B max L, taken over batches in order of arrival."""
    batches = [lengths[begin : begin + slots] for begin in range(0, len(lengths), slots)]
    return sum(lengths) / (slots * sum(max(batch) for batch in batches))


def traces(context: Context) -> dict[str, list[TraceRow]]:
    """Three traces of the same mean output length and no, some and much spread."""
    draw = random.Random(0)
    conversation = [row.output_tokens for row in context.conversation(REQUESTS)]
    mean = round(statistics.mean(conversation))
    lengths = {
        "equal": [mean] * REQUESTS,
        "uniform": [draw.randint(mean // 2, mean + mean // 2) for _ in range(REQUESTS)],
        "conversation": conversation,
    }
    return {name: [TraceRow(0.0, PROMPT, length) for length in those] for name, those in lengths.items()}


def run(context: Context) -> list[Table]:
    whole: list[list[Cell]] = []
    timed: list[list[Cell]] = []
    ample = context.machine.changed(max_num_seqs=SLOTS, num_blocks=context.plenty)
    for name, rows in traces(context).items():
        lengths = [row.output_tokens for row in rows]
        spread = statistics.pstdev(lengths) / statistics.mean(lengths)
        for mode in BOTH:
            machine = ample.with_batching(mode)
            served = serve(machine, at_once(rows), on_end=context.progress(f"modes: {name}, {mode}", len(rows)))
            used = served.counters.generation_tokens / (SLOTS * served.sampling_steps)
            form = f"{static_utilisation(lengths, SLOTS):.3f}" if mode == "static" else "1, less the end"
            latencies = [record.latency for record in served.records]
            row = [served.output_tokens_per_second, percentile(latencies, 50), percentile(latencies, 99)]
            whole.append([name, f"{spread:.2f}", mode, *row, f"{used:.3f}", form])
        rate = LOAD * served.output_tokens_per_second / statistics.mean(lengths)
        times = poisson(rate, REQUESTS / rate, seed=0)
        for mode in ALL:
            machine = ample.with_batching(mode, BATCH_WAIT)
            served = serve(
                machine, at_times(rows, times), on_end=context.progress(f"modes: {name}, {mode}, timed", len(times))
            )
            latencies = [record.latency for record in served.records]
            ttfts = [record.ttft for record in served.records]
            times_seen = [percentile(values, share) for values in (ttfts, latencies) for share in (50, 99)]
            timed.append([name, f"{rate:.1f}", mode, served.output_tokens_per_second, *times_seen])
    size = f"{REQUESTS} requests with prompts of {PROMPT} tokens on {SLOTS} slots"
    return [
        Table(
            "When requests are admitted, all requests there at the start",
            f"{size}. Spread is the standard deviation of output lengths over their mean, utilisation the output "
            "tokens per slot and step; the closed form of static batching is sum L / (B max L) over its batches.",
            ["trace", "spread", "mode", "output tokens/s", "latency p50, s", "p99, s", "utilisation", "closed form"],
            whole,
        ),
        Table(
            f"When requests are admitted, requests at {LOAD:.0%} of what continuous batching can do",
            f"{size}, Poisson arrivals; dynamic waits up to {BATCH_WAIT:g} s for a full batch.",
            ["trace", "requests/s", "mode", "output tokens/s", "TTFT p50, s", "p99, s", "latency p50, s", "p99, s"],
            timed,
        ),
    ]
