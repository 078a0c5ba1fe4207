"""Texts of too many tokens are cut to exactly the limit, and what the tokenizer puts around a text stays."""

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from paternoster_engine.chat.marks import CONTROL_MARK
from paternoster_engine.model import tokenizer as tokenizer_module
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
    cut = tokenizer.encode_text(text, truncation=Truncation(most, side)).ids  # type: ignore[arg-type]
    assert cut == (whole[-most:] if side == "left" else whole[:most])


@given(st.text(max_size=40), st.integers(2, 30), SIDES)
def test_tokens_around_a_text_stay(enclosing: Tokenizer, text: str, most: int, side: str) -> None:
    first, *inner, last = enclosing.encode(text, add_special_tokens=True)
    cut = enclosing.encode_text(text, True, Truncation(most, side)).ids  # type: ignore[arg-type]
    room = most - 2
    assert cut == [first, *(inner[len(inner) - room :] if side == "left" and len(inner) > room else inner[:room]), last]
    assert enclosing.num_special_tokens == 2


def test_marks_are_taken_out_before(tokenizer: Tokenizer) -> None:
    marked = f"a b <{CONTROL_MARK}|im_end|> c"
    assert tokenizer.encode_text(marked, truncation=Truncation(4, "left")).ids == tokenizer.encode(marked)[-4:]


@pytest.mark.parametrize("side", ["left", "right"])
def test_little_is_kept_of_what_is_cut_off(tokenizer: Tokenizer, side: str) -> None:
    """The library keeps all that is cut off, in parts as long as what is left: 100,000 objects of one token here."""
    cut = tokenizer.encode_text("a " * 100_000, truncation=Truncation(1, side))  # type: ignore[arg-type]
    pair = tokenizer.text_encoding("a " * 100_000, "b " * 100_000, 2)
    assert len(cut) == 1
    assert len(cut.overflowing) <= 2
    assert len(pair) == 2
    assert len(pair.overflowing) <= 8


WORDS = st.lists(st.sampled_from(["lift", "a", " ", "\n\n", "paternoster", "3.14", "é", "<|im_end|>"]), max_size=200)


@given(WORDS.map(" ".join), st.integers(1, 40))
@example("lift paternoster<|im_end|><|im_end|><|im_end|><|im_end|>", 1)
def test_a_prefix_has_the_first_tokens_of_the_text(tokenizer: Tokenizer, text: str, num_tokens: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "PIECE", 50)
        prefix = tokenizer.find_prefix(text, num_tokens)
    assert text.startswith(prefix)
    whole, found = tokenizer.encode(text), tokenizer.encode(prefix)
    if len(prefix) < len(text):
        assert len(found) > num_tokens
    # A word or control token that the prefix ends within may be other tokens.
    assert found[:-9] == whole[: max(0, len(found) - 9)]


@given(WORDS.map(" ".join), st.integers(1, 40))
def test_a_suffix_has_the_last_tokens_of_the_text(tokenizer: Tokenizer, text: str, num_tokens: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "PIECE", 50)
        suffix = tokenizer.find_suffix(text, num_tokens)
    assert text.endswith(suffix)
    whole, found = tokenizer.encode(text), tokenizer.encode(suffix)
    if len(suffix) < len(text):
        assert len(found) > num_tokens
    # A word or control token that the suffix begins within may be other tokens.
    count = max(0, len(found) - 9)
    assert found[len(found) - count :] == whole[len(whole) - count :]


@given(WORDS.map(" ".join), st.sampled_from(["", "query: ", "lift"]), st.integers(1, 40))
def test_a_text_that_is_cut_behind_its_beginning_keeps_its_end(
    tokenizer: Tokenizer, text: str, beginning: str, most: int
) -> None:
    whole = tokenizer.text_encoding(beginning + text)
    cut = tokenizer.text_encoding(beginning + text, most=most, cut_after=beginning)
    assert len(cut) == min(len(whole), most)
    first = min(len(tokenizer.text_encoding(beginning)), most - 1) if len(whole) > most else len(whole)
    assert cut.ids == [*whole.ids[:first], *whole.ids[len(whole) - len(cut) + first :]]


def test_the_tokens_of_megabytes_never_exist_at_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    encode = tokenizer._backend.encode_batch_fast

    class Backend:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[tokenizers.Encoding]:
            read.append(sum(map(len, texts)))
            return encode(texts, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(tokenizer, "_backend", Backend())
    prefix = tokenizer.find_prefix("a " * 2**21, 1000)
    suffix = tokenizer.find_suffix("a " * 2**21, 1000)
    assert len(suffix) <= 2 * tokenizer_module.PIECE
    assert max(read) <= tokenizer_module.PIECE
    assert len(prefix) <= 2 * tokenizer_module.PIECE
