"""Long prompts among running requests (Sarathi-Serve, OSDI'24), and prompts that were seen before."""

import random

from scheduling.experiment import Context
from scheduling.serving import Arrival, percentile, serve
from scheduling.table import Cell, Table
from scheduling.traffic import conversations, merged, tokens

LONG_PROMPT = 1500
LONG_EVERY, LONG_COUNT = 1.0, 8
DECODERS, DECODER_OUTPUT = 16, 600
BUDGETS = (64, 128, 256, 512)
CHATS, TURNS, PAUSE = 120, 6, 15.0
CHAT_LOADS = (1.0, 2.0)
"""Chats that begin in a second."""


def run(context: Context) -> list[Table]:
    return [_chunked(context), _multi_turn(context)]


def _chunked(context: Context) -> Table:
    draw = random.Random(0)
    decoders = [Arrival(0.0, tokens(64, draw), DECODER_OUTPUT) for _ in range(DECODERS)]
    long = [Arrival(LONG_EVERY * (1 + n), tokens(LONG_PROMPT, draw), 16) for n in range(LONG_COUNT)]
    arrivals = merged(decoders, long)
    whole = context.machine.changed(max_batched_tokens=2048, prefill_first=True, num_blocks=context.plenty)
    contenders = {"off: a prompt is computed whole, alone": whole} | {
        f"on: {budget} tokens a step": context.machine.changed(max_batched_tokens=budget, num_blocks=context.plenty)
        for budget in BUDGETS
    }
    rows: list[list[Cell]] = []
    for name, machine in contenders.items():
        served = serve(machine, arrivals, on_end=context.progress(f"prompts: {name}", len(arrivals)))
        itls = [1000 * itl for r in served.of(lambda a: len(a.prompt) < LONG_PROMPT) for itl in r.itls]
        ttfts = [record.ttft for record in served.of(lambda a: len(a.prompt) == LONG_PROMPT)]
        rows.append([name, *(percentile(itls, share) for share in (50, 99, 100)), percentile(ttfts, 50)])
    return Table(
        "Chunked prefill on and off",
        f"{DECODERS} requests decode. {LONG_COUNT} prompts of {LONG_PROMPT:,} tokens come, one every {LONG_EVERY:g} s.",
        ["chunked prefill", "ITL p50, ms", "ITL p99, ms", "ITL longest, ms", "TTFT of the long prompts p50, s"],
        rows,
    )


def _multi_turn(context: Context) -> Table:
    rows: list[list[Cell]] = []
    for rate in CHAT_LOADS:
        arrivals = conversations(CHATS, TURNS, rate=rate, pause=PAUSE)
        for cached in (False, True):
            machine = context.machine.changed(prefix_cache=cached, num_blocks=context.plenty)
            title = f"prompts: prefix cache {'on' if cached else 'off'}, {rate:g}/s"
            served = serve(machine, arrivals, on_end=context.progress(title, len(arrivals)))
            ttfts = [record.ttft for record in served.records]
            counters = served.counters
            share = f"{counters.cached_prompt_tokens / counters.prompt_tokens:.0%}"
            row: list[Cell] = [f"{rate:g}", "on" if cached else "off", counters.computed_tokens, share]
            goodput = served.goodput(context.ttft_s, context.itl_s)
            rows.append([*row, percentile(ttfts, 50), percentile(ttfts, 99), goodput])
    return Table(
        "Prefix cache on and off",
        f"{CHATS} chats of {TURNS} turns; each prompt is all that was said before and a message of 20 to 100 tokens, "
        f"answers have 40 to 160, the next message comes after {PAUSE:g} s on average. The pool holds everything.",
        ["chats/s", "prefix cache", "tokens computed", "prompt from cache", "TTFT p50, s", "TTFT p99, s", "goodput"],
        rows,
    )
