"""Memory and time of the index of prefixes, and how soon a restarted gateway has it.

    python benchmarks gateway.index_size

Fills an index with the pieces of many engines, none of them shared, then looks up chains that all engines hold to some
depth. Real objects: memory is what the process grew by. Then kills a gateway process before engines that publish as
many pieces each, and starts it again.
"""

import random
import time

from gateway.restarted_gateway import time_restart
from harness.arguments import RunnerParser
from harness.processes import resident_bytes
from paternoster_gateway.prefixes.prefix_index import PrefixIndex


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--engines", 100)
    parser.add_number("--pieces", 100_000, "of each engine")
    parser.add_number("--frame", 1_000, "pieces that are added at once")
    parser.add_number("--restarts", [1, 4], "engines before a restarted gateway", may_be_empty=True)
    args = parser.parse_args()
    rng = random.Random(0)
    index, before, seconds = PrefixIndex(), resident_bytes(), 0.0
    for engine in range(args.engines):
        for _ in range(0, args.pieces, args.frame):
            frame = [(rng.getrandbits(64), 64 * at) for at in range(args.frame)]
            seconds -= time.process_time()
            index.store(f"http://10.0.0.{engine}:8000", frame)
            seconds += time.process_time()
    grown = resident_bytes() - before
    print(
        f"{index.pairs:,} pieces of {args.engines} engines: {grown / 2**20:.0f} MiB, {grown / index.pairs:.1f} B each"
    )
    print(f"store: {1e6 * seconds / index.pairs:.2f} us a piece, {seconds / args.engines:.2f} s a snapshot")
    for length in (10, 100, 1000):
        for depths in (1, 4, args.engines):
            chain = [rng.getrandbits(64) for _ in range(length)]
            for engine in range(args.engines):
                depth = length * (1 + engine % depths) // depths
                index.store(f"http://10.0.0.{engine}:8000", [(digest, 64) for digest in chain[: max(1, depth)]])
            print(f"find: {timed(index, chain):6.1f} us for {length} pieces, held to {depths} depths")
            for engine in range(args.engines):
                index.remove(f"http://10.0.0.{engine}:8000", chain)
    chain = [rng.getrandbits(64) for _ in range(1000)]
    print(f"find: {timed(index, chain):6.1f} us for 1000 pieces that no engine holds")
    begin = time.process_time()
    index.remove_replica("http://10.0.0.0:8000")
    print(f"forget: {1e6 * (time.process_time() - begin):.1f} us")
    begin = time.process_time()
    for _ in range(100):
        index.store("http://10.0.0.1:8000", [(rng.getrandbits(64), 64)])
    print(f"store beside what is forgotten: {1e4 * (time.process_time() - begin):.0f} us a change")
    for engines in args.restarts:
        print(f"restart before {engines} engines: {time_restart(engines, args.pieces)}")
    return 0


def timed(index: PrefixIndex, chain: list[int], repeats: int = 200) -> float:
    """Microseconds of one search."""
    begin = time.process_time()
    for _ in range(repeats):
        index.find(chain)
    return 1e6 * (time.process_time() - begin) / repeats
