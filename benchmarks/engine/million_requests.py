"""A million tiny requests through the scheduler: memory stays flat, every block comes back, every request ends once.

    python benchmarks engine.million_requests --requests 1000000 --json result.json

The model is one that answers at once, so that what is left is the engine's own bookkeeping: about a day of a busy
replica in minutes. Requests share beginnings, stop, are aborted, run into deadlines and preempt each other on a small
pool; the live cap moves. Memory is what the process holds, looked at every hundredth of the way.
"""

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.processes import resident_bytes
from harness.results import write_json
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner

CONFIG = SchedulerConfig(
    max_num_seqs=32,
    max_batched_tokens=128,
    max_model_len=64,
    block_size=4,
    num_blocks=40,
    max_queued_requests=64,
    preemption="swap",
    host_blocks=64,
)
QUEUED = 48
"""Requests that wait at most: the queue never runs empty and never refuses."""
VOCABULARY = 50
LOOKS = 100


class HashRunner(SynchronousRunner):
    """A token that is a hash of where it stands, so that some of them stop."""

    def execute(self, batch: Batch) -> StepResult:
        return StepResult(
            [(7 * item.stop + item.request.seed) % VOCABULARY if item.samples else None for item in batch.scheduled]
        )


@dataclass(frozen=True)
class Soaked:
    """What there was to see; memory in bytes."""

    requests: int
    steps: int
    seconds: float
    finished: dict[str, int]
    preemptions: int
    swapped_blocks: int
    blocks_held: int
    """After the last request, so without a holder; 0 unless one leaked."""
    host_blocks_held: int
    memory: list[int]
    """Memory of the process, at each look."""
    objects: list[int]
    """Alive for the garbage collector, at each look."""


def soak(
    count: int, config: SchedulerConfig = CONFIG, *, on_finished: Callable[[int], object] = lambda _: None
) -> Soaked:
    """Run ``count`` requests to their end; raises ``AssertionError`` when a look finds something out of its place."""
    draw = random.Random(0)
    now = 0.0
    engine = Engine(Scheduler(config), HashRunner(), clock=lambda: now)
    scheduler = engine.scheduler
    memory: list[int] = []
    objects: list[int] = []
    added = steps = reported = 0
    every = max(1, count // LOOKS)
    started = time.perf_counter()
    while added < count or scheduler.has_work:
        while added < count and len(scheduler.waiting) < QUEUED:
            scheduler.add(_request(added, now, draw))
            added += 1
        if steps % 50 == 0:
            scheduler.live_cap = draw.randint(1, config.max_num_seqs)
        if steps % 7 == 0 and scheduler.running:
            scheduler.abort(draw.choice(scheduler.running).request_id)
        engine.step()
        now += 1.0
        steps += 1
        finished = scheduler.counters.finished.total()
        if finished // every > reported // every:
            scheduler.check_integrity()
            gc.collect()
            memory.append(resident_bytes())
            objects.append(len(gc.get_objects()))
        on_finished(finished - reported)
        reported = finished
    scheduler.check_integrity()
    counters = scheduler.counters
    return Soaked(
        requests=added,
        steps=steps,
        seconds=time.perf_counter() - started,
        finished={str(reason): number for reason, number in counters.finished.items()},
        preemptions=counters.preemptions,
        swapped_blocks=counters.swapped_out_blocks,
        blocks_held=scheduler.pool.num_used,
        host_blocks_held=config.host_blocks - scheduler.swap.num_free,
        memory=memory,
        objects=objects,
    )


def _request(index: int, now: float, draw: random.Random) -> Request:
    prompt = [7] * draw.choice([0, 0, 4, 8, 12]) + [draw.randrange(3) for _ in range(draw.randint(1, 6))]
    return Request(
        RequestSpec(
            f"r{index}",
            prompt,
            SamplingParams(max_tokens=draw.randint(1, 12), temperature=0.0, stop_token_ids=(0, 1)),
            arrival=now,
            seed=index,
            deadline=now + draw.uniform(2, 60) if index % 8 == 0 else None,
        )
    )


def main() -> int:
    parser = RunnerParser(__doc__, json="write every figure")
    parser.add_number("--requests", 1_000_000, least=LOOKS)
    options = parser.parse_args()
    with tqdm(total=options.requests, unit="request", disable=None) as bar:
        soaked = soak(options.requests, on_finished=bar.update)
    # The first tenth fills caches and the allocator's arenas.
    settled = soaked.memory[len(soaked.memory) // 10 :]
    grown = (settled[-1] - settled[0]) / 2**20
    print(f"{soaked.requests:,} requests in {soaked.steps:,} steps, {soaked.seconds:.0f} s: {soaked.finished}")
    print(f"{soaked.preemptions:,} preemptions, {soaked.swapped_blocks:,} blocks swapped out")
    print(f"memory {settled[0] / 2**20:.1f} MiB after a tenth, {grown:+.1f} MiB at the end")
    print(f"objects {soaked.objects[len(soaked.objects) // 10]:,} after a tenth, {soaked.objects[-1]:,} at the end")
    print(f"blocks that did not come back: {soaked.blocks_held} of the pool, {soaked.host_blocks_held} of the host")
    write_json(options.json, soaked)
    return 0 if soaked.blocks_held == soaked.host_blocks_held == 0 else 1
