"""Which replica a prompt goes to: by what replicas hold of it, what waits at each, and the pace of the fleet."""

import dataclasses
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.prefixes.expected_pieces import EXPECTED_SECONDS
from paternoster_gateway.prefixes.prefix_index import Prefix
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Queue, Result, RoutedRequest, Send
from paternoster_gateway.routing.pace import ReplicaPace
from paternoster_gateway.routing.prefix_routing import (
    MAX_CANDIDATES,
    Pick,
    PrefixRouting,
    PromptChain,
    PromptTokens,
    SentRequest,
)

URLS = ("a", "b", "c", "d")


def route_of(urls: tuple[str, ...] = URLS) -> ModelRoute:
    return ModelRoute(replicas=[Replica(name=url, url=url, ready=True) for url in urls])


def text(begin: int, pieces: int) -> PromptChain:
    return PromptChain([begin * 1000 + at for at in range(pieces)], range(512, 512 * pieces + 1, 512), 512 * pieces)


class Fleet:
    """A balancer with one fleet, and what it sends where."""

    def __init__(self, urls: tuple[str, ...] = URLS, bound: int | None = None) -> None:
        self.balancer, self.row = Balancer(prefixes=PrefixRouting(seed=1)), route_of(urls)
        self.row.max_in_flight = bound
        self.balancer.on_table(RoutingTable(models={"m": self.row}))

    def send(self, prompt: PromptChain | None, now: float = 0.0) -> tuple[RoutedRequest, str]:
        request = self.balancer.open_request("m", "", now, prompt=prompt)
        decision = self.balancer.route(request, self.row, now)
        assert isinstance(decision, Send)
        return request, decision.replica.url

    def answer(self, request: RoutedRequest, url: str, first: float) -> None:
        self.balancer.on_result(request, url, Result.ANSWERED, first)
        self.balancer.on_attempt_end(request, url)


def test_a_prompt_goes_where_its_beginning_is_cached() -> None:
    fleet = Fleet()
    fleet.balancer.prefixes.reported.store("c", [(digest, 128) for digest in text(1, 20).digests[:15]])
    request, url = fleet.send(text(1, 20))
    assert url == "c"
    assert request.pick is not None
    assert (request.pick.promised_tokens, request.pick.held.tokens) == (128, 128)


def test_a_conversation_stays_at_a_replica_that_publishes_nothing() -> None:
    fleet = Fleet()
    first, url = fleet.send(text(1, 5))
    fleet.answer(first, url, 1)
    for turn in range(6, 12):
        request, again = fleet.send(text(1, turn), now=turn)
        fleet.answer(request, again, turn + 0.1)
        assert again == url


@pytest.mark.parametrize("result", [Result.UNREACHABLE, Result.BROKEN, Result.NOT_SERVING])
def test_what_an_engine_was_sent_that_may_have_restarted_is_forgotten(result: Result) -> None:
    fleet = Fleet()
    first, url = fleet.send(text(1, 5))
    fleet.answer(first, url, 1)
    other, another = fleet.send(text(2, 5))
    fleet.answer(other, another, 1)
    fleet.balancer.on_result(fleet.send(text(3, 5))[0], url, result, 2)
    prefixes = fleet.balancer.prefixes
    assert url not in prefixes.find("m", text(1, 5), 2)
    assert another in prefixes.find("m", text(2, 5), 2)


def test_what_an_engine_was_sent_is_forgotten_while_it_is_not_ready() -> None:
    fleet = Fleet()
    first, url = fleet.send(text(1, 5))
    fleet.answer(first, url, 1)
    replicas = [dataclasses.replace(each, ready=each.url != url) for each in fleet.row.replicas]
    fleet.balancer.on_table(RoutingTable(models={"m": fleet.row}))
    assert url in fleet.balancer.prefixes.find("m", text(1, 5), 2)
    fleet.balancer.on_table(RoutingTable(models={"m": ModelRoute(replicas=replicas)}))
    assert url not in fleet.balancer.prefixes.find("m", text(1, 5), 2)


def test_what_a_tenant_sent_is_not_found_by_others_unless_engines_share_their_cache() -> None:
    prefixes = PrefixRouting()
    assert prefixes.isolates_tenants(URLS)
    prefixes.begin_report("a", isolates_tenants=False)
    assert not prefixes.isolates_tenants(URLS)
    prefixes.begin_report("b", isolates_tenants=True)
    assert prefixes.isolates_tenants(URLS)


def test_a_conversation_stays_where_it_was_sent_until_that_replica_has_reported_it() -> None:
    fleet = Fleet()
    prefixes = fleet.balancer.prefixes
    for url in URLS:
        prefixes.reported.store(url, ())
    first, url = fleet.send(text(1, 5), now=10.0)
    fleet.answer(first, url, 10.1)
    request, again = fleet.send(text(1, 6), now=11.0)
    assert again == url
    assert request.pick is not None
    assert request.pick.held.pieces == 5
    assert url not in prefixes.find("m", text(1, 6), 11.0 + 2 * EXPECTED_SECONDS)


def test_a_replica_that_lies_about_its_cache_loses_its_credit_and_regains_it() -> None:
    fleet = Fleet()
    fleet.balancer.prefixes.reported.store("c", [(digest, 2000) for digest in text(1, 20).digests])
    prefixes, urls = fleet.balancer.prefixes, Counter[str]()
    for number in range(60):
        request, url = fleet.send(text(1, 20), now=10.0 * number)
        urls[url] += 1
        tokens = PromptTokens(2560, 0)
        fleet.balancer.on_result(request, url, Result.ANSWERED, 10.0 * number + 2.56, tokens=tokens)
        fleet.balancer.on_attempt_end(request, url)
        for other in set(URLS) - {"c"}:
            prefixes.remove_replica(other)
    assert prefixes.find_credit("c") < 0.2
    request, _ = fleet.send(text(1, 20))
    for _ in range(60):
        prefixes.on_prompt_tokens(
            "m", "c", request.sent.setdefault("c", sent_to("c", prefixes)), PromptTokens(2560, 2000)
        )
    assert prefixes.find_credit("c") > 0.9


@pytest.mark.parametrize("tokens", [(0, 0), (-1, 0), (10, 11), (10, -1), (10**9, 0)])
def test_impossible_numbers_of_tokens_are_not_believed(tokens: tuple[int, int]) -> None:
    fleet = Fleet()
    prefixes = fleet.balancer.prefixes
    before = prefixes.tokens_per_byte("m")
    assert prefixes.on_prompt_tokens("m", "a", sent_to("a", prefixes), PromptTokens(*tokens)) is None
    assert prefixes.tokens_per_byte("m") == before
    assert prefixes.find_credit("a") == 1


def sent_to(url: str, prefixes: PrefixRouting) -> SentRequest:
    prompt = text(1, 20)
    return prefixes.send("m", prompt, Pick(Prefix(20, 2000), 2000, 0.0, 4), url, 0, 0.0)


def test_a_long_queue_outweighs_a_short_prefix() -> None:
    fleet = Fleet()
    fleet.balancer.prefixes.reported.store("c", [(text(1, 4).digests[0], 128)])
    fleet.send(PromptChain([*text(1, 1).digests, *text(9, 200).digests], range(512, 512 * 201 + 1, 512), 512 * 201))
    assert fleet.send(text(1, 4))[1] != "c"


@pytest.mark.parametrize("busy", [False, True])
def test_a_busy_fleet_computes_less_twice(busy: bool) -> None:
    fleet = Fleet()
    prefixes, held = fleet.balancer.prefixes, text(1, 100)
    prefixes.reported.store("c", [(digest, 128) for digest in held.digests])
    other = PromptChain(text(9, 120).digests, held.ends, 120 * 512)
    prefixes.send("m", other, Pick(Prefix(0, 0), 0, 0.0, 4), "c", 0, 0.0)
    prefixes.get_pace("m").observe_work(1e9 if busy else 0, 0.0)
    # More waits there than it has cached; once all are busy, computing it twice would delay others as well.
    assert (fleet.send(held)[1] == "c") == busy


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 100)), max_size=20), st.integers(0, 100))
def test_work_counts_once_to_ten_times(sent: list[tuple[float, float]], replicas: int) -> None:
    pace, now = ReplicaPace(), 0.0
    for tokens, pause in sent:
        now += pause
        pace.observe_work(tokens, now)
        assert 1 <= pace.delay_factor(replicas, now) <= 10.001
    assert pace.delay_factor(replicas, now + 10_000) == pytest.approx(1)


def test_the_same_prompt_from_all_clients_spreads() -> None:
    fleet = Fleet()
    now, total = 0.0, Counter[str]()
    for number in range(400):
        # Each has a shared beginning and a piece of its own; first bytes take longer with each request beside.
        prompt = PromptChain([*text(1, 10).digests, 10**6 + number], range(512, 512 * 11 + 1, 512), 512 * 11)
        flying = [fleet.send(prompt, now)]
        for _ in range(7):
            flying.append(fleet.send(prompt, now))
        beside = Counter(url for _, url in flying)
        for request, url in flying:
            fleet.answer(request, url, now + 0.05 + 0.02 * beside[url])
        total += beside if number >= 200 else Counter()
        now += 10
    assert max(total.values()) <= 1.3 * total.total() / len(URLS)


def test_no_replica_of_those_to_avoid_gets_a_prompt() -> None:
    fleet = Fleet()
    fleet.balancer.prefixes.reported.store("c", [(digest, 128) for digest in text(1, 20).digests])
    request, url = fleet.send(text(1, 20))
    fleet.balancer.on_attempt_end(request, url)
    fleet.balancer.on_result(request, url, Result.UNREACHABLE, 0.0)
    decision = fleet.balancer.route(request, fleet.row, 0.0)
    assert isinstance(decision, Send)
    assert decision.replica.url != url == "c"


def test_a_replica_at_its_bound_gets_none_whatever_it_holds() -> None:
    fleet = Fleet(bound=1)
    fleet.balancer.prefixes.reported.store("c", [(digest, 128) for digest in text(1, 20).digests])
    held, url = fleet.send(text(1, 20))
    assert url == "c"
    others = {fleet.send(text(1, 20))[1] for _ in range(3)}
    assert others == {"a", "b", "d"}
    waiting = fleet.balancer.open_request("m", "", 0.0, prompt=text(1, 20))
    assert isinstance(fleet.balancer.route(waiting, fleet.row, 0.0), Queue)
    assert fleet.balancer.on_attempt_end(held, "c") == [waiting]
    decision = fleet.balancer.route(waiting, fleet.row, 1.0)
    assert isinstance(decision, Send)
    assert decision.replica.url == "c"


def test_few_of_many_replicas_are_compared_and_the_best_holder_is_among_them() -> None:
    fleet = Fleet(tuple(f"r{number:04}" for number in range(1000)))
    for number in range(200):
        fleet.balancer.prefixes.reported.store(f"r{number:04}", [(text(1, 9).digests[0], 64)])
    fleet.balancer.prefixes.reported.store("r0777", [(digest, 64) for digest in text(1, 9).digests])
    request, url = fleet.send(text(1, 9))
    assert url == "r0777"
    assert request.pick is not None
    assert request.pick.candidates <= MAX_CANDIDATES + 1


def test_what_has_left_the_table_is_forgotten() -> None:
    fleet = Fleet()
    prefixes = fleet.balancer.prefixes
    prefixes.reported.store("c", [(1, 1)])
    fleet.send(text(1, 3))
    fleet.balancer.on_table(RoutingTable())
    assert not prefixes.reported.replicas
    assert not prefixes.find("m", text(1, 3), 0.0)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 8), st.sampled_from(["answer", "fail", "left", "no prompt"])),
        max_size=40,
    )
)
def test_nothing_waits_once_all_requests_have_ended(requests: list[tuple[int, int, str]]) -> None:
    fleet, flying = Fleet(), []
    for now, (begin, pieces, end) in enumerate(requests):
        request, url = fleet.send(None if end == "no prompt" else text(begin, pieces), float(now))
        flying.append((request, url, end))
    for request, url, end in flying:
        if end == "answer":
            fleet.answer(request, url, 100.0)
        elif end == "fail":
            fleet.balancer.on_result(request, url, Result.UNREACHABLE, 100.0)
            fleet.balancer.on_attempt_end(request, url)
        fleet.balancer.on_disconnect(request)
    assert not fleet.balancer.in_flight
    assert not fleet.balancer.prefixes._waiting


@given(st.integers(0, 2**32))
def test_the_pace_of_engines_is_learnt(seed: int) -> None:
    rng, pace = Random(seed), ReplicaPace()
    for _ in range(200):
        tokens, beside = rng.uniform(10, 5000), rng.randrange(8)
        pace.observe_first_byte(tokens, beside, 0.02 + 3e-4 * tokens + 0.01 * beside)
    assert pace.seconds_per_token == pytest.approx(3e-4, rel=0.01)
    assert pace.seconds_per_request == pytest.approx(0.01, rel=0.01)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1000), st.floats(0, 1e4)), max_size=60))
def test_the_pace_is_finite_and_not_negative_whatever_is_observed(samples: list[tuple[float, int, float]]) -> None:
    pace = ReplicaPace()
    for tokens, beside, seconds in samples:
        pace.observe_first_byte(tokens, beside, seconds)
    assert 0 < pace.seconds_per_token < float("inf")
    assert 0 <= pace.seconds_per_request < float("inf")
