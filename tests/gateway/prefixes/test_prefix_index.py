"""The index of prefixes against a naive model, and its bounds."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paternoster_gateway.prefixes.piece_table import DIGEST_BITS, PieceTable
from paternoster_gateway.prefixes.prefix_index import Prefix, PrefixIndex

REPLICAS = st.sampled_from(["a", "b", "c"])
CHAINS = [
    [(1 << 60) + 1, 7, (5 << 52) + 3, 2**DIGEST_BITS - 1, 12],
    [(1 << 60) + 1, 7, (5 << 52) + 4, 9, 10],
    [3, 4, 5, 6, 11],
]
CHAIN = st.sampled_from(CHAINS)


def pieces(chain: list[int], tokens: int = 10) -> list[tuple[int, int]]:
    return [(digest, tokens * (at + 1)) for at, digest in enumerate(chain)]


def longest(held: dict[int, int], chain: list[int]) -> Prefix:
    prefix = Prefix(0, 0)
    for at, digest in enumerate(chain):
        if digest not in held:
            break
        prefix = Prefix(at + 1, held[digest])
    return prefix


class IndexIsWhatReplicasHold(RuleBasedStateMachine):
    """Replicas store beginnings of chains and remove their ends, as a cache does; the model keeps a dict for each."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.held: dict[str, dict[int, int]] = {}

    @rule(replica=REPLICAS, chain=CHAIN, length=st.integers(1, 5), tokens=st.integers(1, 9))
    def store(self, replica: str, chain: list[int], length: int, tokens: int) -> None:
        self.index.store(replica, pieces(chain, tokens)[:length])
        self.held.setdefault(replica, {}).update(pieces(chain, tokens)[:length])

    @rule(replica=REPLICAS, chain=CHAIN, length=st.integers(0, 5))
    def remove(self, replica: str, chain: list[int], length: int) -> None:
        # The ends of other chains that begin the same way go, too: a prefix stays closed.
        gone = {each for other in CHAINS for at, each in enumerate(other) if set(other[: at + 1]) & set(chain[length:])}
        self.index.remove(replica, list(gone))
        for digest in gone:
            self.held.get(replica, {}).pop(digest, None)

    @rule(replica=REPLICAS)
    def forget(self, replica: str) -> None:
        self.index.forget(replica)
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
            swept += not table.sweep({slot}, 4096)
            model = {pair: tokens for pair, tokens in model.items() if pair[1] != slot}
        assert table.tokens_by_slot(digest) == {s: t for (d, s), t in model.items() if d == digest}
    assert table.pairs == len(model)
    assert swept == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.integers(1, 300))
def test_long_chains_at_many_depths(depths: list[int], length: int) -> None:
    chain = [hash((at, "piece")) % 2**DIGEST_BITS for at in range(length)]
    index = PrefixIndex()
    for number, depth in enumerate(depths):
        index.store(f"r{number}", pieces(chain)[:depth])
    found = index.find(chain)
    expected = {f"r{number}": min(depth, length) for number, depth in enumerate(depths) if depth}
    assert {replica: prefix.pieces for replica, prefix in found.items()} == expected
    assert all(prefix.tokens == 10 * prefix.pieces for prefix in found.values())


def test_forgotten_pieces_leave_memory_while_others_come() -> None:
    index = PrefixIndex()
    index.store("gone", [(digest << 44, 1) for digest in range(5_000)])
    index.forget("gone")
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
        index.remember("a", [(100 * number + at, at + 1) for at in range(5)], most=20)
    assert index.count("a") <= 20
    assert index.find([900, 901])["a"] == Prefix(2, 2)
    assert index.find([800, 801])["a"] == Prefix(2, 2)
    assert not index.find([0, 1])


def test_unique_prompts_do_not_fill_the_memory() -> None:
    index = PrefixIndex()
    for number in range(3_000):
        index.remember("a", [((number * 8 + at) * 0x9E3779B97F4A7C15 % 2**64, 1) for at in range(8)], most=400)
        assert index.count("a") <= 400
    assert index.pairs < 20_000
