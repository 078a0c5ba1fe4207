"""Stop strings do not depend on how a text is cut, and no client ever sees one."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.server.generation.stop_strings import StopStrings

TEXT = st.text(alphabet="ab", max_size=30)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=4)
CUTS = st.lists(st.integers(min_value=0, max_value=30), max_size=8)


def _pieces(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(edges)]


def _seen(pieces: list[str], stops: list[str], include: bool = False) -> list[str]:
    """What is visible after each piece, up to the end."""
    watch, seen, shown = StopStrings(stops, include), [], ""
    for piece in pieces:
        shown += watch.add_text(piece)
        seen.append(shown)
        if watch.stopped:
            return seen
    return [*seen, shown + watch.flush()]


def _expected(text: str, stops: list[str], include: bool = False) -> str:
    """Text by definition, letter by letter: it ends as soon as it ends with a stop string."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[:end] if include else text[: end - max(map(len, complete))]
    return text


@given(TEXT, STOPS, CUTS, st.booleans())
def test_the_text_ends_where_the_definition_says(text: str, stops: list[str], cuts: list[int], include: bool) -> None:
    assert _seen(_pieces(text, cuts), stops, include)[-1] == _expected(text, stops, include)


@given(TEXT, STOPS, CUTS)
def test_no_stop_string_is_seen_at_any_moment(text: str, stops: list[str], cuts: list[int]) -> None:
    for seen in _seen(_pieces(text, cuts), stops):
        assert not any(stop in seen for stop in stops)


@given(TEXT, STOPS, CUTS)
def test_holds_back_no_more_than_could_become_a_stop_string(text: str, stops: list[str], cuts: list[int]) -> None:
    pieces = _pieces(text, cuts)
    arrived = ""
    for piece, seen in zip(pieces, _seen(pieces, stops), strict=False):
        arrived += piece
        if _expected(arrived, stops) == arrived:
            held = arrived.removeprefix(seen)
            assert held == "" or any(stop.startswith(held) for stop in stops)
