"""A replica's claims of what it has cached: they count as far as the gateway's own clock bears them out."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.cache_credit import MOST_UNMEASURED, RECENT_PICKS, UNMEASURED_EVERY, CacheCredit
from paternoster_gateway.routing.decisions import Result, Send
from paternoster_gateway.routing.prefix_routing import PrefixRouting, PromptChain, PromptTokens

SECONDS_PER_TOKEN = 4e-4
PIECE, PIECE_TOKENS = 512, 128


class ClaimingFleet:
    """Replicas that answer at once, some of which claim to hold every prompt and compute all of it."""

    def __init__(self, replicas: int, false: int, *, confirms: bool | None = True, noise: float = 0.05) -> None:
        """``confirms``: whether headers of false replicas claim as much; None without headers."""
        self.urls = [f"r{number}" for number in range(replicas)]
        self.false = set(self.urls[:false])
        self.confirms, self._noise, self._random = confirms, noise, Random(3)
        self.row = ModelRoute(replicas=[Replica(name=url, url=url, ready=True) for url in self.urls])
        self.balancer = Balancer(prefixes=PrefixRouting(seed=1))
        self.balancer.on_table(RoutingTable(models={"m": self.row}))
        for url in self.urls:
            self.begin_report(url)
        self._cached: dict[str, set[int]] = {url: set() for url in self.urls}
        self.now, self.hits = 0.0, 0

    def begin_report(self, url: str) -> None:
        self.balancer.prefixes.begin_report(url, isolates_tenants=False)

    def send(self, digests: list[int]) -> str:
        """Send a prompt, answered before the next one; returns where it went."""
        reported, ends = self.balancer.prefixes.reported, range(PIECE, PIECE * len(digests) + 1, PIECE)
        pieces = [(digest, PIECE_TOKENS * number) for number, digest in enumerate(digests, 1)]
        for url in self.false:
            reported.store(url, pieces)
        request = self.balancer.open_request("m", "", self.now, prompt=PromptChain(digests, ends, ends[-1]))
        decision = self.balancer.route(request, self.row, self.now)
        assert isinstance(decision, Send)
        url, prompt = decision.replica.url, PIECE_TOKENS * len(digests)
        held = 0 if url in self.false else PIECE_TOKENS * sum(digest in self._cached[url] for digest in digests)
        self.hits += held
        seconds = 0.03 + SECONDS_PER_TOKEN * (prompt - held) + abs(self._random.gauss(0, self._noise))
        claimed = held if url not in self.false else prompt if self.confirms else 0
        tokens = None if self.confirms is None else PromptTokens(prompt, claimed)
        self.balancer.on_result(request, url, Result.ANSWERED, self.now + seconds, tokens=tokens)
        self.balancer.on_attempt_end(request, url)
        if url not in self.false:
            self._cached[url].update(digests)
            reported.store(url, pieces)
        self.now += 5.0
        return url

    def send_chats(self, number: int, *, pieces: int = 20) -> Counter[str]:
        """Prompts of which three in five begin as one of 40 does; by replica."""
        sent = Counter[str]()
        for _ in range(number):
            shared = pieces * 3 // 4 if self._random.random() < 0.6 else 0
            own = self._random.getrandbits(40) << 8
            first = self._random.randrange(40) << 8
            sent[self.send([first + at if at < shared else own + at for at in range(pieces)])] += 1
        return sent

    def false_share(self, sent: Counter[str]) -> float:
        return sum(sent[url] for url in self.false) / sent.total()


@pytest.mark.parametrize("confirms", [True, False, None])
@pytest.mark.parametrize(("replicas", "false"), [(4, 1), (4, 2), (2, 1)])
def test_a_replica_that_claims_every_prefix_soon_wins_nothing_by_it(
    replicas: int, false: int, confirms: bool | None
) -> None:
    """Whether its headers say so too, say the opposite, or there are none."""
    fleet = ClaimingFleet(replicas, false, confirms=confirms)
    fleet.send_chats(200)
    assert fleet.false_share(fleet.send_chats(200)) <= false / replicas * 1.1
    prefixes = fleet.balancer.prefixes
    assert all((prefixes.find_credit(url) < 0.2) == (url in fleet.false) for url in fleet.urls)


@pytest.mark.parametrize(("replicas", "most"), [(4, 0.5), (2, 0.75)])
def test_claims_that_no_time_bears_out_win_no_more_than_a_part(replicas: int, most: float) -> None:
    """What is claimed is lost in the noise: the share that claims alone win is bounded all the same."""
    fleet = ClaimingFleet(replicas, 1, noise=5.0)
    fleet.send_chats(100)
    assert fleet.false_share(fleet.send_chats(400)) <= most + 0.5 / replicas


def test_credit_does_not_come_back_with_a_new_stream() -> None:
    fleet = ClaimingFleet(4, 1)
    fleet.send_chats(200)
    credit = fleet.balancer.prefixes.find_credit("r0")
    fleet.begin_report("r0")
    assert fleet.balancer.prefixes.find_credit("r0") == credit
    fleet.balancer.on_table(RoutingTable())
    assert fleet.balancer.prefixes.find_credit("r0") == 1


def test_a_replica_that_delivers_again_regains_its_credit() -> None:
    fleet = ClaimingFleet(4, 1)
    fleet.send_chats(200)
    assert fleet.balancer.prefixes.find_credit("r0") < 0.2
    fleet.false.clear()
    fleet.begin_report("r0")
    fleet.send_chats(600)
    assert fleet.balancer.prefixes.find_credit("r0") > 0.9


@pytest.mark.parametrize("noise", [0.05, 0.5, 5.0])
def test_honest_replicas_keep_their_hits_in_any_noise(noise: float) -> None:
    fleet = ClaimingFleet(4, 0, noise=noise)
    fleet.send_chats(400)
    if noise < 1:  # above the time that a cached prompt saves, less is certain
        assert min(fleet.balancer.prefixes.find_credit(url) for url in fleet.urls) > 0.9
    assert fleet.hits >= 0.35 * 400 * 20 * PIECE_TOKENS


def test_one_conversation_stays_at_one_replica_once_its_times_confirm_what_is_cached() -> None:
    fleet = ClaimingFleet(4, 0)
    fleet.send_chats(100)
    sent = Counter(fleet.send([10**6 + at for at in range(20 + turn)]) for turn in range(2 * RECENT_PICKS))
    assert max(sent.values()) == 2 * RECENT_PICKS


Answer = tuple[float, float, float, int, float]


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.floats(1, 1e6), st.floats(0, 1), st.floats(0, 1e6), st.integers(0, 1000), st.floats(0, 1e4)),
        max_size=60,
    )
)
def test_credit_is_from_0_to_1_whatever_is_observed(answers: list[Answer]) -> None:
    credit = CacheCredit()
    for prompt, share, ahead, beside, seconds in answers:
        credit.observe_first_byte(
            "m", "a", prompt=prompt, claimed=share * prompt, ahead=ahead, beside=beside, seconds=seconds
        )
        credit.observe_report("a", round(prompt), round(share * prompt))
        assert 0 <= credit.find_credit("a") <= 1


def test_some_claims_are_ignored_while_there_is_nothing_to_measure_them_by() -> None:
    """Several replicas that claim everything could else share all requests between them, each within its part."""
    credit, ignored = CacheCredit(), 0
    for number in range(2 * MOST_UNMEASURED):
        url = "ab"[number % 2]
        wins = credit.may_win("m", url, 4)
        assert wins or number >= MOST_UNMEASURED
        ignored += not wins
        credit.count_pick("m", url if wins else "c", by_claims=wins, ignored=not wins)
    assert ignored == MOST_UNMEASURED / UNMEASURED_EVERY
