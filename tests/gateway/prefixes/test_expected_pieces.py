"""What replicas were sent is expected there for some seconds, against a naive model."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_gateway.prefixes.expected_pieces import EXPECTED_SECONDS, ExpectedPieces

CHAINS = ([1, 2, 3, 4], [1, 2, 5], [6, 7], [1])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(CHAINS), st.floats(0, 3), st.booleans()), max_size=30),
    st.sampled_from(CHAINS),
)
def test_each_is_expected_for_one_to_two_periods(
    sent: list[tuple[str, list[int], float, bool]], prompt: list[int]
) -> None:
    expected, now = ExpectedPieces(), 100.0
    log: list[tuple[str, list[int], float]] = []
    for replica, chain, pause, forgets in sent:
        now += pause
        if forgets:
            expected.remove_replica(replica)
            log = [entry for entry in log if entry[0] != replica]
        expected.add(replica, chain, now)
        log.append((replica, chain, now))
    found = expected.find(prompt, now)
    for replica in "abc":
        young = [count(chain, prompt) for name, chain, at in log if name == replica and now - at < EXPECTED_SECONDS]
        any_age = [
            count(chain, prompt) for name, chain, at in log if name == replica and now - at < 2 * EXPECTED_SECONDS
        ]
        assert max(young, default=0) <= found.get(replica, 0) <= max(any_age, default=0)


def count(chain: list[int], prompt: list[int]) -> int:
    """Pieces of ``prompt`` up to the deepest one that ``chain`` has."""
    return max((at + 1 for at, digest in enumerate(prompt) if digest in chain), default=0)


def test_the_pieces_are_bounded() -> None:
    expected = ExpectedPieces(max_pieces=100)
    for number in range(1000):
        expected.add("a", range(10 * number, 10 * number + 10), 1.0)
    assert len(expected._young) + len(expected._old) <= 220
    assert expected.find([9990, 9999], 1.0) == {"a": 2}
    assert not expected.find([0, 9], 1.0)
