"""CPU that a gateway spends to route a body by its text: `python benchmarks gateway.prompt_cost`.

Reading and hashing the text, the choice among replicas, and what is noted of the request until its answer has ended; a
part of the replicas hold the prompt up to some depth. CPU time of this process, without HTTP.
"""

import asyncio
import json
import random
import time

from harness.arguments import RunnerParser
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.proxy.body import refuse_costly
from paternoster_gateway.proxy.prompt import read_prompt
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Result, Send
from paternoster_gateway.routing.prefix_routing import PromptTokens

PATH = "/v1/chat/completions"
TURN_BYTES = 2000
"""Length of a message; a shorter body has one."""


def body_of(size: int) -> bytes:
    chance = random.Random(size)
    words = ["".join(chance.choice("abcdefghij") for _ in range(6)) for _ in range(2000)]
    messages = [
        {
            "role": ("user", "assistant")[at % 2],
            "content": " ".join(chance.choices(words, k=min(size, TURN_BYTES) // 7)),
        }
        for at in range(max(1, size // TURN_BYTES))
    ]
    return json.dumps({"model": "m", "messages": messages}).encode()


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--replicas", 4)
    parser.add_number("--sizes", [200, 10_000, 100_000, 400_000, 1_000_000])
    parser.add_number("--repeats", 100)
    args = parser.parse_args()
    print(f"{'bytes':>9}{'pieces':>8}{'text, ms':>10}{'by text, ms':>13}{'by load, ms':>13}")
    for size in args.sizes:
        asyncio.run(measure(body_of(size), args.replicas, args.repeats))
    return 0


async def measure(body: bytes, replicas: int, repeats: int) -> None:
    balancer, urls = Balancer("gateway"), [f"http://10.0.0.{number}:8000" for number in range(replicas)]
    row = ModelRoute(replicas=[Replica(name=url, url=url, ready=True) for url in urls])
    balancer.on_table(RoutingTable(models={"m": row}))
    call = Call(PATH, "m", body, {}, brackets=await refuse_costly(body))
    began = time.process_time()
    for _ in range(repeats):
        prompt = await read_prompt(call, "m", "tenant")
    reading = time.process_time() - began
    for number, url in enumerate(urls):
        balancer.prefixes.begin_report(url, isolates_tenants=True)
        pieces = [] if prompt is None else list(zip(prompt.digests, prompt.ends, strict=True))
        balancer.prefixes.reported.store(url, pieces[: len(pieces) if number == 0 else len(pieces) // (10 * number)])
    times = []
    for text in (prompt, None):
        began = time.process_time()
        for number in range(repeats):
            now = 10.0 * number
            request = balancer.open_request("m", "", now, prompt=text)
            decision = balancer.route(request, row, now)
            assert isinstance(decision, Send)
            url = decision.replica.url
            balancer.on_result(request, url, Result.ANSWERED, now + 0.1, tokens=PromptTokens(len(body) // 4, 0))
            balancer.on_attempt_end(request, url)
        times.append(time.process_time() - began)
    each = [1e3 * seconds / repeats for seconds in (reading, *times)]
    count = 0 if prompt is None else len(prompt.digests)
    print(f"{len(body):>9}{count:>8}{each[0]:>10.3f}{each[1]:>13.3f}{each[2]:>13.3f}", flush=True)
