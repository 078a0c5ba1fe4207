"""Calls among faults in virtual time, through the gateway's own sessions: `python benchmarks streams.faults`.

Gateways, engines and a network, all drawn from a seed. Replicas die, hang, drain, end connections and answer what no
engine does; one call in thousands makes each engine die that computes a certain token of it. Bytes come late and in
pieces, tables late, twice and in another order. After every event these must hold, or the run ends with the seed:

- no byte of an answer comes twice, is missing or is another one's;
- a call has one attempt at a time, but for a hand-over, and counts at no replica once it has ended;
- nothing is held for ever;
- a poison call ends no more replicas in a row, without a frame of it, than the rules of blame need;
- no other call is blamed for what a poison call did.

Per gateway: of two gateways, one may blame a call for stops whose cause the other has; those are counted.
"""

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from tqdm import tqdm

from harness.arguments import RunnerParser
from streams.virtual.running_call import Violation
from streams.virtual.world import World


def run_seed(seed: int, num_calls: int) -> tuple[int, Counter[str], int, str]:
    """The seed, how its calls ended, how many were blamed by chance, and what must not happen, if it did."""
    world, violation = World(seed, num_calls), ""
    try:
        world.run()
    except Violation as found:
        violation = str(found)
    return seed, world.outcomes, world.chance_blames, violation


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--seeds", 100, "how many runs")
    parser.add_number("--first-seed", 0, "of the first run", least=0)
    parser.add_number("--calls", 10_000, "of each run")
    parser.add_number("--workers", 2, "processes")
    options = parser.parse_args()
    outcomes, chance, failed, began = Counter[str](), 0, dict[int, str](), time.perf_counter()
    with (
        ProcessPoolExecutor(options.workers) as pool,
        tqdm(total=options.seeds * options.calls, unit="call", unit_scale=True, disable=None) as bar,
    ):
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        for run in as_completed([pool.submit(run_seed, seed, options.calls) for seed in seeds]):
            seed, ended, blamed, violation = run.result()
            outcomes += ended
            chance += blamed
            bar.update(options.calls)
            if violation:
                failed[seed] = violation
                bar.write(f"--first-seed {seed} --seeds 1 --calls {options.calls}: {violation}")
    print(f"{outcomes.total():,} calls over {options.seeds} seeds in {time.perf_counter() - began:.0f} s")
    for how, count in outcomes.most_common():
        print(f"  {how:<24} {count:>10,}")
    print(f"  blamed by chance         {chance:>10,}")
    print(f"runs with a broken invariant: {len(failed)}")
    return 1 if failed else 0
