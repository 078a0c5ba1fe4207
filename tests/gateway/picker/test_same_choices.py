"""Picker and gateway, of the same clock and state, choose the same replica for each of thousands of requests."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from tests.gateway.picker.envoy_messages import HEADERS, answer_head, headers_set, request_body, request_head

from paternoster_contract.access.identity import Identity
from paternoster_contract.access.keys import digest_key
from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.admission.admission import admit_request
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.actions import Forward, Hold, Pause, StartAttempt
from paternoster_gateway.call.attempt import Attempt, ReplicaAnswer
from paternoster_gateway.call.observer import CallObserver
from paternoster_gateway.call.registry import SessionRegistry
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.picker.limits import PickerLimits
from paternoster_gateway.picker.service import Picker
from paternoster_gateway.process.drain import Shutdown
from paternoster_gateway.proxy.body import read_call
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Result, RoutedRequest
from paternoster_gateway.routing.prefix_routing import PrefixRouting, PromptTokens
from paternoster_gateway.sent_keys import SentKeys
from paternoster_http.open_requests import open_request_alone

REQUESTS = 2000
KEYS = ["sk-a" * 8, "sk-b" * 8]
URLS = [f"http://10.0.0.{number}:8000" for number in range(6)]
PATH = "/v1/chat/completions"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class PatientDispatcher(Dispatcher):
    """Holds requests until they are woken: the clock of the test is not the event loop's."""

    async def await_wake(self, request: RoutedRequest, until: float | None = None) -> None:
        await super().await_wake(request)


class Driver:
    """Decisions of one of the two, by number of the request."""

    def __init__(self, clock: Clock) -> None:
        self.dispatcher = PatientDispatcher(Balancer("gateway", PrefixRouting(1)), clock)
        self.table = RoutingTable()
        self.decisions: dict[int, object] = {}
        """URL of a replica, or the status of a refusal."""
        self.answers: dict[int, asyncio.Future[PromptTokens]] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def publish(self, table: RoutingTable) -> None:
        self.table = table
        self.dispatcher.change_table(table)

    def begin(self, number: int, key: str, body: bytes) -> None:
        self.answers[number] = asyncio.get_running_loop().create_future()
        self.tasks[number] = asyncio.create_task(self.run_request(number, key, body))

    async def run_request(self, number: int, key: str, body: bytes) -> None:
        raise NotImplementedError


class GatewayDriver(Driver):
    """Sessions as the gateway runs them, with answers of the test."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.registry = SessionRegistry(self.dispatcher, Quarantine(), CallObserver(), self.dispatcher.wake_requests)

    async def run_request(self, number: int, key: str, body: bytes) -> None:
        call = await read_call(PATH, body, digest_key(key), self.table, {}, open_request_alone())
        admission = admit_request(self.table, call.model, digest_key(key), time.time(), named=call.named)
        session = CallSession(self.registry, call, admission, await self.dispatcher.open_call(call, admission))
        try:
            action = session.advance()
            while action is not None:
                event: object = None
                match action:
                    case Hold(until):
                        await self.dispatcher.await_wake(session.request, until)
                    case StartAttempt(replica):
                        self.decisions[number] = replica.url
                        tokens = await self.answers[number]
                        answer = ReplicaAnswer(200, [], replica.url, 1)
                        event = Attempt(replica.url, answer, result=Result.ANSWERED, tokens=tokens)
                    case Forward():
                        event = Pause.ENDED
                action = session.advance(event)
        except GatewayError as error:
            self.decisions[number] = error.status
        finally:
            session.close()


class StreamOfTest:
    """Stand-in for a context of gRPC's."""

    def __init__(self, messages: Sequence[ProcessingRequest], answer: asyncio.Future[PromptTokens]) -> None:
        self.messages = list(messages)
        self.answer: asyncio.Future[PromptTokens] | None = answer
        self.decision: object = None

    async def read(self) -> object:
        if self.messages:
            return self.messages.pop(0)
        if self.answer is None:
            return grpc.aio.EOF
        answer, self.answer = self.answer, None
        tokens = await answer
        return answer_head(headers={PROMPT_TOKENS: str(tokens.prompt), CACHED_TOKENS: str(tokens.cached)})

    async def write(self, reply: ProcessingResponse) -> None:
        if reply.WhichOneof("response") == "immediate_response":
            self.decision = reply.immediate_response.status.code
        if reply.WhichOneof("response") == "request_headers":
            self.decision = "http://" + headers_set(reply)["x-gateway-destination-endpoint"].partition(",")[0]


class PickerDriver(Driver):
    """Streams as the picker runs them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.contexts: dict[int, StreamOfTest] = {}
        self.picker = Picker(
            self.dispatcher, lambda: self.table, SentKeys(None, ""), GatewayMetrics(), PickerLimits(), Shutdown()
        )

    async def run_request(self, number: int, key: str, body: bytes) -> None:
        head = request_head({**HEADERS, "authorization": f"Bearer {key}"})
        context = StreamOfTest([head, request_body(body, ends=True)], self.answers[number])
        self.contexts[number] = context
        await self.picker.Process(None, context)

    def read_decisions(self) -> dict[int, object]:
        return {number: each.decision for number, each in self.contexts.items() if each.decision is not None}


def make_table(random: Random, **fields: Any) -> RoutingTable:
    """A fleet of two to six ready replicas, for two tenants."""
    ready = set(random.sample(URLS, random.randrange(2, len(URLS) + 1)))
    replicas = [Replica(name=url, url=url, ready=url in ready) for url in URLS]
    identities = {digest_key(key): Identity(tenant=f"t{number}") for number, key in enumerate(KEYS)}
    access = {"key_digests": [*identities], "identities": identities}
    return RoutingTable(models={"m": ModelRoute(replicas=replicas, aliases=["alias"], **access, **fields)})


@pytest.mark.parametrize("bound", [None, 3])
async def test_thousands_of_requests_go_where_the_gateway_sends_them(bound: int | None) -> None:
    """Ten conversations go by text and by load, with answers in any order, tables that change, and full queues."""
    random, clock = Random(5), Clock()
    drivers = GatewayDriver(clock), PickerDriver(clock)
    gateway, picker = drivers
    fields = {"max_in_flight": bound, "max_held": 12}
    conversations = ["".join(random.choices("abcdefgh ", k=random.randrange(200, 6000))) for _ in range(10)]
    open_requests: list[int] = []

    async def settle() -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    def publish() -> None:
        table = make_table(random, **fields)
        for driver in drivers:
            driver.publish(table)

    publish()
    for number in range(REQUESTS):
        clock.now += random.expovariate(20)
        if random.random() < 0.01:
            publish()
            await settle()
        text = random.choice(conversations) + "".join(random.choices("xyz ", k=random.randrange(400)))
        if random.random() < 0.3:
            text = "too short for a piece"
        body = json.dumps({"model": random.choice(["m", "alias"]), "messages": [{"role": "user", "content": text}]})
        key = random.choice(KEYS)
        for driver in drivers:
            driver.begin(number, key, body.encode())
        open_requests.append(number)
        await settle()
        if number % 100 == 0:
            assert picker.read_decisions() == gateway.decisions
        while len(open_requests) > 24 or (open_requests and random.random() < 0.4):
            ended = open_requests.pop(random.randrange(len(open_requests)))
            clock.now += random.expovariate(50)
            tokens = PromptTokens(1 + len(text) // 4, random.randrange(1 + len(text) // 4))
            for driver in drivers:
                if not driver.answers[ended].done():
                    driver.answers[ended].set_result(tokens)
            await settle()
    for driver in drivers:
        for answer in driver.answers.values():
            if not answer.done():
                answer.set_result(PromptTokens(100, 10))
        await asyncio.wait_for(asyncio.gather(*driver.tasks.values()), 60)
        assert driver.dispatcher.balancer.in_flight == {}
    decisions = picker.read_decisions()
    assert decisions == gateway.decisions
    assert len(decisions) == REQUESTS
    counts = Counter(decisions.values())
    assert set(URLS) <= set(counts)
    assert (429 in counts) == (bound is not None)
