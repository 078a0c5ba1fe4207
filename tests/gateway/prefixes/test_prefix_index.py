"""The index of prefixes against a naive model, and its bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paternoster_gateway.prefixes.piece_table import DIGEST_BITS, MAX_SLOTS, PieceTable
from paternoster_gateway.prefixes.prefix_index import MAX_PROBES, MAX_REPLICAS, Prefix, PrefixIndex

REPLICAS = st.sampled_from(["a", "b", "c"])
CHAINS = [
    [(1 << 60) + 1, 7, (5 << 52) + 3, 2**DIGEST_BITS - 1, 12],
    [(1 << 60) + 1, 7, (5 << 52) + 4, 9, 10],
    [3, 4, 5, 6, 11],
]
CHAIN = st.sampled_from(CHAINS)
PLACES = st.sets(st.integers(0, 4), min_size=1)


def pieces(chain: list[int], tokens: int = 10) -> list[tuple[int, int]]:
    return [(digest, tokens * (at + 1)) for at, digest in enumerate(chain)]


def longest(held: dict[int, int], chain: list[int]) -> Prefix:
    """Longest prefix by the contract of text chains: the deepest piece decides."""
    depths = [at for at, digest in enumerate(chain) if digest in held]
    return Prefix(depths[-1] + 1, held[chain[depths[-1]]]) if depths else Prefix(0, 0)


class IndexIsWhatReplicasHold(RuleBasedStateMachine):
    """Replicas store and remove any pieces, as a cache with windows does; the model keeps a dict for each."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.held: dict[str, dict[int, int]] = {}

    @rule(replica=REPLICAS, chain=CHAIN, places=PLACES, tokens=st.integers(1, 9))
    def store(self, replica: str, chain: list[int], places: set[int], tokens: int) -> None:
        stored = [pieces(chain, tokens)[at] for at in places]
        self.index.store(replica, stored)
        self.held.setdefault(replica, {}).update(stored)

    @rule(replica=REPLICAS, chain=CHAIN, places=PLACES)
    def remove(self, replica: str, chain: list[int], places: set[int]) -> None:
        gone = [chain[at] for at in places]
        self.index.remove(replica, gone)
        for digest in gone:
            self.held.get(replica, {}).pop(digest, None)

    @rule(replica=REPLICAS)
    def forget(self, replica: str) -> None:
        self.index.remove_replica(replica)
        self.held.pop(replica, None)

    @invariant()
    def finds_the_longest_prefix_of_each(self) -> None:
        for chain in CHAINS:
            expected = {replica: longest(held, chain) for replica, held in self.held.items()}
            found = self.index.find(chain)
            assert found == {replica: prefix for replica, prefix in expected.items() if prefix.pieces}

    @invariant()
    def counts_what_each_holds(self) -> None:
        assert all(self.index.count(replica) == len(held) for replica, held in self.held.items())


TestIndexIsWhatReplicasHold = IndexIsWhatReplicasHold.TestCase


@given(
    st.lists(st.tuples(st.sampled_from("ars"), st.integers(0, 20), st.integers(0, 3), st.integers(0, 9)), max_size=80)
)
def test_table_is_a_dict_of_pairs(changes: list[tuple[str, int, int, int]]) -> None:
    table, model, swept = PieceTable(), dict[tuple[int, int], int](), 0
    for change, number, slot, tokens in changes:
        digest = number * (2**DIGEST_BITS // 16) % 2**DIGEST_BITS + number
        if change == "a":
            assert table.add(digest, slot, tokens) == ((digest, slot) not in model)
            model[digest, slot] = tokens
        elif change == "r":
            assert table.remove(digest, slot) == (model.pop((digest, slot), None) is not None)
        else:
            swept += not table.sweep_buckets({slot}, 4096)
            model = {pair: tokens for pair, tokens in model.items() if pair[1] != slot}
        held = {s: t for (d, s), t in model.items() if d == digest}
        assert dict(zip(*(table.find_holders(digest) or ((), ())), strict=True)) == held
    assert table.pairs == len(model)
    assert swept == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 700), min_size=1, max_size=4), st.integers(1, 700))
def test_long_chains_at_many_depths(depths: list[int], length: int) -> None:
    chain = [hash((at, "piece")) % 2**DIGEST_BITS for at in range(length)]
    index = PrefixIndex()
    for number, depth in enumerate(depths):
        index.store(f"r{number}", pieces(chain)[:depth])
    found = index.find(chain)
    expected = {f"r{number}": min(depth, length) for number, depth in enumerate(depths) if depth}
    assert {replica: prefix.pieces for replica, prefix in found.items()} == expected
    assert all(prefix.tokens == 10 * prefix.pieces for prefix in found.values())


@settings(deadline=None)
@given(st.sets(st.integers(0, 599), min_size=1), st.integers(1, 600))
def test_a_long_chain_with_gaps_is_found_up_to_a_step(held: set[int], length: int) -> None:
    chain = [hash((at, "piece")) % 2**DIGEST_BITS for at in range(600)]
    index = PrefixIndex()
    index.store("a", [pieces(chain)[at] for at in held])
    depths = [at + 1 for at in held if at < length]
    found = index.find(chain[:length]).get("a", Prefix(0, 0)).pieces
    assert found in {0, *depths}
    step = -(-length // MAX_PROBES)
    probed = [depth for depth in depths if depth == 1 or (length - depth) % step == 0]
    assert found >= max(probed, default=0)
    assert found == max(depths, default=0) or step > 1


def test_forgotten_pieces_leave_memory_while_others_come() -> None:
    index = PrefixIndex()
    index.store("gone", [(digest << 44, 1) for digest in range(5_000)])
    index.remove_replica("gone")
    for number in range(300):
        index.store("there", [((number * 64 + at) << 40, 1) for at in range(64)])
        index.remove("there", [(number * 64 + at) << 40 for at in range(64)])
    for _ in range(2 * 4096 // 2):
        index.store("there", [(at << 40, 1) for at in range(64)])
    assert index.pairs == index.count("there") == 64


def test_replicas_share_the_memory_equally() -> None:
    index = PrefixIndex(max_pieces=100, max_of_replica=80)
    index.store("a", [(digest, 1) for digest in range(90)])
    assert index.count("a") == 80
    assert index.refused == 10
    index.store("b", [(digest, 1) for digest in range(90)])
    assert index.count("b") == 50


def test_history_forgets_the_older_half() -> None:
    index = PrefixIndex()
    for number in range(10):
        index.store_expected("a", [(100 * number + at, at + 1) for at in range(5)], most=20)
    assert index.count("a") <= 20
    assert index.find([900, 901])["a"] == Prefix(2, 2)
    assert index.find([800, 801])["a"] == Prefix(2, 2)
    assert not index.find([0, 1])


def test_unique_prompts_do_not_fill_the_memory() -> None:
    index = PrefixIndex()
    for number in range(3_000):
        index.store_expected("a", [((number * 8 + at) * 0x9E3779B97F4A7C15 % 2**64, 1) for at in range(8)], most=400)
        assert index.count("a") <= 400
    assert index.pairs < 20_000


@pytest.mark.timeout(120)
def test_more_replicas_than_slots_end_in_refused_pieces() -> None:
    """A search for a free slot had no end where there is none."""
    index = PrefixIndex()
    for number in range(MAX_SLOTS + 10):
        index.store_expected(f"r{number}", [(number, 1)], most=1)
        index.store_expected(f"r{number}", [(number, 1)], most=1)
    assert len(index.replicas) == MAX_REPLICAS
    assert index.refused
    index.remove_replica("r0")
    index.store("new", [(1, 1)])
    assert index.find([1])["new"] == Prefix(1, 1)
