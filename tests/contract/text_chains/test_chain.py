"""Chains depend on scope, settings and all text before, end behind instructions, and are bounded."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.text_chains.canonical_text import CHATS, CanonicalText, canonical_text, encode_parts
from paternoster_contract.text_chains.chain import MAX_PIECES, ChainHash, chain_scope, text_chain

SCOPE = chain_scope("m")
TEXTS = st.text(max_size=30).map(lambda text: text * 40)


@given(head=st.none() | TEXTS, common=TEXTS, left=TEXTS, right=TEXTS)
def test_pieces_are_common_exactly_as_far_as_texts_are(head, common, left, right):
    def text(end):
        parts = [*([] if head is None else [head]), common + end]
        return CanonicalText(parts, head=0 if head is None else 1)

    first, second = (text_chain(SCOPE, text(end)) for end in (left, right))
    data = text(left).encode(), text(right).encode()
    for mine, other in zip(first, second, strict=False):
        same = mine.end == other.end and data[0][: mine.end] == data[1][: other.end]
        assert (mine.digest == other.digest) == same


@given(parts=st.lists(TEXTS, max_size=4), more=TEXTS, cuts=st.lists(st.integers(0, 5000), max_size=4))
def test_a_continued_chain_is_that_of_the_whole_text(parts, more, cuts):
    whole = CanonicalText([*parts, more], head=len(parts) // 2)
    data = whole.encode()
    chain, pieces, last = ChainHash(SCOPE, whole), [], 0
    for cut in [*sorted(cuts), len(data)]:
        pieces += chain.extend(data[last:cut])
        last = max(last, min(cut, len(data)))
    assert pieces == text_chain(SCOPE, whole)
    assert [piece.end for piece in pieces] == sorted({piece.end for piece in pieces})


def test_a_piece_ends_behind_the_instructions():
    text = canonical_text(CHATS[0], {"messages": [{"role": "system", "content": "x" * 100},
                                                  {"role": "user", "content": "y" * 100}]})  # fmt: skip
    ends = [piece.end for piece in text_chain(SCOPE, text)]
    assert ends == [len(encode_parts(text.parts[:2])), 128]


def test_tools_alone_have_a_piece_and_change_all_others():
    messages = [{"role": "user", "content": "y" * 500}]
    chains = [
        text_chain(SCOPE, canonical_text(CHATS[0], {"messages": messages, "tools": [{"name": name}]}))
        for name in ("a", "b")
    ]
    assert chains[0][0].end == 0
    assert not {piece.digest for piece in chains[0]} & {piece.digest for piece in chains[1]}


def test_scopes_have_no_digest_in_common():
    scopes = {chain_scope("m"), chain_scope("m", "t"), chain_scope("m", "", "t"), chain_scope("n"),
              chain_scope("m", adapter="t"), chain_scope("m", "a", "b"), chain_scope("m", "ab")}  # fmt: skip
    digests = [piece.digest for scope in scopes for piece in text_chain(scope, CanonicalText(["z" * 1000]))]
    assert len(scopes) == 7
    assert len(set(digests)) == len(digests)


def test_a_chain_is_bounded():
    pieces = text_chain(SCOPE, CanonicalText(["a" * 2**21]))
    assert len(pieces) == MAX_PIECES
    assert pieces[-1].end == 2**15 + (MAX_PIECES - 32 - 56) * 2048
