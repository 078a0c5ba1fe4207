"""Texts of too many tokens are cut to exactly so many, and what the tokenizer puts around a text stays."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from paternoster_engine.chat.marks import MARK
from paternoster_engine.model.tokenizer import Tokenizer, Truncation

SIDES = st.sampled_from(["left", "right"])


@pytest.fixture(scope="module")
def enclosing(tokenizer: Tokenizer) -> Tokenizer:
    """With a token before and one behind each text, as Llama's and BERT's have them."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    around = [("<|im_start|>", 1), ("<|im_end|>", 2)]
    backend.post_processor = TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=around)
    return Tokenizer(backend, tokenizer.eos_token_ids, None, {})


@given(st.text(max_size=40), st.integers(1, 30), SIDES)
def test_tokens_alone(tokenizer: Tokenizer, text: str, most: int, side: str) -> None:
    whole = tokenizer.encode(text)
    cut = tokenizer.encoding(text, truncation=Truncation(most, side)).ids  # type: ignore[arg-type]
    assert cut == (whole[-most:] if side == "left" else whole[:most])


@given(st.text(max_size=40), st.integers(2, 30), SIDES)
def test_tokens_around_a_text_stay(enclosing: Tokenizer, text: str, most: int, side: str) -> None:
    first, *inner, last = enclosing.encode(text, add_special_tokens=True)
    cut = enclosing.encoding(text, True, Truncation(most, side)).ids  # type: ignore[arg-type]
    room = most - 2
    assert cut == [first, *(inner[len(inner) - room :] if side == "left" and len(inner) > room else inner[:room]), last]
    assert enclosing.num_special_tokens == 2


def test_marks_are_taken_out_before(tokenizer: Tokenizer) -> None:
    marked = f"a b <{MARK}|im_end|> c"
    assert tokenizer.encoding(marked, truncation=Truncation(4, "left")).ids == tokenizer.encode(marked)[-4:]


@pytest.mark.parametrize("side", ["left", "right"])
def test_little_is_kept_of_what_is_cut_off(tokenizer: Tokenizer, side: str) -> None:
    """The library keeps all that is cut off, in parts as long as what is left: 100,000 objects of one token here."""
    cut = tokenizer.encoding("a " * 100_000, truncation=Truncation(1, side))  # type: ignore[arg-type]
    pair = tokenizer.text_encoding("a " * 100_000, "b " * 100_000, 2)
    assert len(cut) == 1
    assert len(cut.overflowing) <= 2
    assert len(pair) == 2
    assert len(pair.overflowing) <= 8
