"""What a tenant's flood costs another tenant, before engines of this project: queued there, or at the gateways.

    python benchmarks gateway.engine_flood --engines 2 --gateways 2

Balancers and dispatchers of several gateways before engines' own schedulers with fair shares, whose steps take as long
as a hardware profile says; all in virtual time. Without a bound on the requests in flight requests wait in the engines.
With one, of the live cap and a few that wait in the engine, the others wait in the gateways' queues, which share the
bound in equal parts. Halfway through each way there are twice as many engines.
"""

import argparse
import asyncio
import statistics
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import Any

from gateway.tenant_flood import MODEL, TENANTS, VirtualTime, find_p99, send_steadily, send_through, tenant_access
from harness.arguments import RunnerParser
from harness.results import write_json
from harness.servers import route_to
from paternoster_contract.routing import RoutingTable
from paternoster_contract.settings.scheduling import OrderName
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.balancer import Balancer
from paternoster_simulator.cost import to_seconds, to_ticks
from paternoster_simulator.profile import Profile, load_profile
from paternoster_simulator.prompts import filler_tokens
from paternoster_simulator.replica.replica import SimulatedReplica
from paternoster_simulator.settings import FleetSettings


class ScheduledEngine:
    """One engine's scheduler, stepped in the time of the running event loop."""

    def __init__(self, profile: Profile, cap: int, order: OrderName) -> None:
        config = FleetSettings(max_num_seqs=cap).scheduler_config(profile).replace(order=order)
        self._replica = SimulatedReplica("engine", config, profile.cost, fast_forward=False)
        self._serial = 0
        self._work, self._stepped = asyncio.Event(), asyncio.Event()
        self.most_waiting = 0
        self._running = asyncio.create_task(self._run())

    @property
    def displacements(self) -> int:
        return self._replica.scheduler.counters.priority_preemptions

    def stop(self) -> None:
        self._running.cancel()

    async def generate(self, tenant: str, prompt: int, answer: int) -> AsyncIterator[int]:
        """Yields the number of new tokens, once they are there."""
        self._serial += 1
        now = to_ticks(asyncio.get_running_loop().time())
        params = SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
        spec = RequestSpec(str(self._serial), filler_tokens(prompt), params, arrival=now, tenant=tenant)
        request = Request(spec)
        self._replica.add(request, now)
        self._work.set()
        seen = 0
        while seen < answer:
            await self._stepped.wait()
            if (count := len(request.output)) > seen:
                yield count - seen
                seen = count

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._replica.end is None:
                self._work.clear()
                await self._work.wait()
                continue
            end = self._replica.end
            await asyncio.sleep(to_seconds(end) - loop.time())
            self._replica.advance(end)
            self.most_waiting = max(self.most_waiting, len(self._replica.scheduler.waiting))
            self._stepped.set()
            self._stepped.clear()


@dataclass(frozen=True)
class Bound:
    """How many requests an engine gets at a time beyond its cap."""

    lookahead: int
    spare: int
    """Spare places of each gateway, for a sender with a small part of what is in flight."""


class Fleet:
    """Gateways before engines, of which more may come."""

    def __init__(self, args: argparse.Namespace, bound: Bound | None) -> None:
        self._args, self._bound = args, bound
        self.engines: dict[str, ScheduledEngine] = {}
        clock = asyncio.get_running_loop().time
        self.gateways = [Dispatcher(Balancer(f"gateway-{number}"), clock) for number in range(args.gateways)]

    def add_engines(self, count: int) -> None:
        """Start ``count`` engines and publish a table with them."""
        profile = load_profile(self._args.profile)
        for _ in range(count):
            self.engines[f"http://{len(self.engines)}"] = ScheduledEngine(profile, self._args.cap, self._args.order)
        row = route_to(*self.engines, **tenant_access(), max_held=100_000)
        if self._bound is not None:
            row.max_in_flight = max(1, (self._args.cap + self._bound.lookahead) // self._args.gateways)
            row.spare_in_flight = self._bound.spare
        for dispatcher in self.gateways:
            dispatcher.change_table(RoutingTable(models={MODEL: row}))

    async def send(self, gateway: int, key: str, answer: int) -> float:
        """Seconds to the first token of a request through a gateway."""
        prompt = self._args.prompt
        return await send_through(
            self.gateways[gateway], key, prompt, lambda url: self.engines[url].generate(TENANTS[key], prompt, answer)
        )


async def measure_way(args: argparse.Namespace, *, flood: bool, bound: Bound | None) -> dict[str, Any]:
    fleet, lengths, clients = Fleet(args, bound), Random("lengths"), list[asyncio.Task[Any]]()
    fleet.add_engines(args.engines)

    def draw_answer() -> int:
        return lengths.randint(1, 2 * args.answer - 1)

    async def send_always(gateway: int) -> None:
        while True:
            await fleet.send(gateway, "flood-key", draw_answer())

    if flood:
        clients = [asyncio.create_task(send_always(n % args.gateways)) for n in range(args.flood * args.gateways)]
    result: dict[str, Any] = {}
    for half, added in ("", 0), (" with twice the engines", args.engines):
        if added:
            fleet.add_engines(added)
            more = args.flood * args.gateways if flood else 0
            clients += [asyncio.create_task(send_always(n % args.gateways)) for n in range(more)]
        await asyncio.sleep(args.settle)
        times = await send_steadily(
            args.requests, args.interval, lambda number: fleet.send(number % args.gateways, "quiet-key", draw_answer())
        )
        result[f"TTFT p50{half}"] = round(statistics.median(times), 3)
        result[f"TTFT p99{half}"] = find_p99(times)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    result["displaced"] = sum(engine.displacements for engine in fleet.engines.values())
    result["most waiting in an engine"] = max(engine.most_waiting for engine in fleet.engines.values())
    for engine in fleet.engines.values():
        engine.stop()
    return result


async def measure_ways(args: argparse.Namespace) -> dict[str, Any]:
    ways: dict[str, tuple[bool, Bound | None]] = {"alone": (False, None), "queued in engines": (True, None)}
    for spare in args.spare:
        ways |= {
            f"in gateways, {each} beyond the cap, {spare} spare": (True, Bound(each, spare)) for each in args.lookahead
        }
    results = {}
    for way, (flood, bound) in ways.items():
        results[way] = row = await measure_way(args, flood=flood, bound=bound)
        print(f"{way}: " + ", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return results


def main() -> int:
    parser = RunnerParser(__doc__, json="file for the results")
    parser.add_number("--engines", 2)
    parser.add_number("--gateways", 2)
    parser.add_argument("--profile", default="llama-3-8b-h100")
    parser.add_number("--cap", 32, "sequences at a time of an engine")
    parser.add_argument("--order", default="fair-share", help="of an engine's queue")
    parser.add_number("--lookahead", [0, 4], "requests beyond the cap", least=0, may_be_empty=True)
    parser.add_number("--spare", [0, 1], "places beyond it for a small part", least=0, may_be_empty=True)
    parser.add_number("--flood", 64, "clients of the flood at each gateway")
    parser.add_number("--requests", 100, "of the quiet tenant, in each half")
    parser.add_number("--interval", 0.3, "seconds between two of them")
    parser.add_number("--settle", 5.0, "seconds of flood before each half")
    parser.add_number("--prompt", 500, "tokens")
    parser.add_number("--answer", 200, "tokens, on average: from one to twice as many")
    args = parser.parse_args()
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        results = runner.run(measure_ways(args))
    write_json(args.json, results)
    return 0
