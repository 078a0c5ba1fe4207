"""Requests of the experiments. Every draw comes from the seed, so that contenders get the same requests."""

import random
from collections.abc import Iterable, Sequence

from paternoster_traces.trace import TraceRow
from scheduling.serving import Arrival

VOCABULARY = 49_152


def poisson(rate: float, duration: float, seed: int) -> list[float]:
    """Times of a Poisson process of ``rate`` a second, within ``duration`` seconds."""
    draw = random.Random(seed)
    times: list[float] = []
    now = draw.expovariate(rate)
    while now < duration:
        times.append(now)
        now += draw.expovariate(rate)
    return times


def tokens(count: int, draw: random.Random) -> list[int]:
    return [draw.randrange(VOCABULARY) for _ in range(count)]


def at_once(rows: Iterable[TraceRow], seed: int = 0) -> list[Arrival]:
    """All rows at second 0."""
    draw = random.Random(seed)
    return [Arrival(0.0, tokens(row.prompt_tokens, draw), row.output_tokens) for row in rows]


def at_times(rows: Sequence[TraceRow], times: Sequence[float], seed: int = 0) -> list[Arrival]:
    """The rows over and over, one at each time."""
    draw = random.Random(seed)
    wanted = [rows[number % len(rows)] for number in range(len(times))]
    return [
        Arrival(time, tokens(row.prompt_tokens, draw), row.output_tokens)
        for time, row in zip(times, wanted, strict=True)
    ]


def merged(*streams: Sequence[Arrival]) -> list[Arrival]:
    """Several streams in one order of time."""
    return sorted((arrival for stream in streams for arrival in stream), key=lambda arrival: arrival.time)


def conversations(count: int, turns: int, *, rate: float, pause: float, seed: int = 0) -> list[Arrival]:
    """Chats that begin at ``rate`` a second; each turn's prompt is the conversation so far and a new message.

    The next message comes ``pause`` seconds after the last one, give or take half of it. Messages have 20 to 100
    tokens, answers 40 to 160.
    """
    draw = random.Random(seed)
    arrivals: list[Arrival] = []
    begin = 0.0
    for _ in range(count):
        begin += draw.expovariate(rate)
        now, conversation = begin, tokens(30, draw)
        for _ in range(turns):
            conversation = conversation + tokens(draw.randint(20, 100), draw)
            answer = tokens(draw.randint(40, 160), draw)
            arrivals.append(Arrival(now, conversation, len(answer), answer))
            conversation = conversation + answer
            now += pause * draw.uniform(0.5, 1.5)
    return merged(arrivals)
