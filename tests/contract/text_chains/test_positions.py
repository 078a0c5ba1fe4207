"""Ends of texts in a prompt that a template wrote, and how many of them are looked for in vain."""

from paternoster_contract.text_chains.canonical_text import CHATS, CanonicalText, canonical_text
from paternoster_contract.text_chains.positions import MAX_MISSES, find_byte_ends, locate_prompt

SYSTEM, QUESTION = "You write about an old house.", "Who lives on its third floor?"


def test_a_text_ends_where_the_template_wrote_it_and_one_that_is_left_out_where_the_next_begins() -> None:
    parts = [SYSTEM, "A thought that templates leave out.", QUESTION]
    rendered = f"<s>{SYSTEM}</s><u>{QUESTION}</u>".encode()
    ends = [4, len(SYSTEM), len(SYSTEM) + 20, sum(map(len, parts))]
    begins = rendered.index(QUESTION.encode())
    assert find_byte_ends(parts, ends, rendered) == [7, 3 + len(SYSTEM), begins, begins + len(QUESTION)]


def test_tokens_of_a_prompt_hold_all_text_up_to_a_piece_and_never_fewer_than_before() -> None:
    body = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]}
    text = canonical_text(CHATS[0], body)
    assert text is not None
    rendered = f"<s>{SYSTEM}</s><u>{QUESTION}</u>"
    lengths = [4] * (len(rendered) // 4) + [len(rendered) % 4]
    head = text.head_bytes
    assert head is not None
    counts = locate_prompt(text, [head - 1, head, text.num_bytes], rendered, lengths)
    assert counts == [-(-(len(SYSTEM) + 2) // 4), -(-(len(SYSTEM) + 3) // 4), -(-(len(rendered) - 4) // 4)]
    assert locate_prompt(CanonicalText((), token_ids=[5, 6, 7]), [3, 4, 12], "", ()) == [1, 1, 3]


def test_texts_that_no_template_writes_are_looked_for_a_bounded_number_of_times() -> None:
    """Each is searched for in the rest of the prompt: a body of thousands would hold the event loop."""
    rendered = f"{SYSTEM}{QUESTION}".encode()
    parts = [f"a text that is left out, {number}" for number in range(MAX_MISSES)] + [SYSTEM]
    assert find_byte_ends(parts, [sum(map(len, parts)) - 1], rendered) == [len(rendered)]
    assert find_byte_ends(parts[1:], [sum(map(len, parts[1:])) - 1], rendered) == [len(SYSTEM) - 1]
