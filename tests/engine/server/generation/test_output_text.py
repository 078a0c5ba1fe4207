"""From tokens to text: what streams equals what comes whole."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.model.vocabulary.vocabularies import write

from paternoster_engine.core.request import FinishReason
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.output_text import SequenceText, prompt_text

EMOJI = "a 🙂 stop b é STOP"


def _stream(
    tokenizer: Tokenizer, tokens: list[int], reason: FinishReason, **params: object
) -> tuple[list[str], FinishReason]:
    text = SequenceText(tokenizer, SamplingParams(max_tokens=len(tokens), **params))  # type: ignore[arg-type]
    deltas = []
    for count, token in enumerate(tokens, start=1):
        delta = text.add_token(token, reason if count == len(tokens) else None)
        deltas.append(delta.text)
        if delta.finish_reason is not None:
            return deltas, delta.finish_reason
    raise AssertionError("the sequence did not end")


@given(st.lists(st.integers(min_value=0, max_value=49151), min_size=1, max_size=40))
def test_pieces_join_to_the_decoded_whole(tokenizer: Tokenizer, tokens: list[int]) -> None:
    deltas, reason = _stream(tokenizer, tokens, FinishReason.LENGTH)
    assert "".join(deltas) == tokenizer.decode(tokens)
    assert reason is FinishReason.LENGTH


def test_no_half_characters(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(EMOJI)
    deltas, _ = _stream(tokenizer, tokens, FinishReason.LENGTH)
    assert "�" not in "".join(deltas)
    assert "".join(deltas) == EMOJI


def test_a_stop_string_overrules_the_length(tokenizer: Tokenizer) -> None:
    deltas, reason = _stream(tokenizer, tokenizer.encode("one two"), FinishReason.LENGTH, stop=("two",))
    assert ("".join(deltas), reason) == ("one ", FinishReason.STOP)


def test_a_stop_string_may_be_wanted(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("one two three")
    deltas, _ = _stream(tokenizer, tokens, FinishReason.LENGTH, stop=("tw",), include_stop_str_in_output=True)
    assert "".join(deltas) == "one tw"


def test_no_stop_string_before_min_tokens(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a b a b a b")
    deltas, _ = _stream(tokenizer, tokens, FinishReason.LENGTH, stop=("b",), min_tokens=3)
    assert "".join(deltas) == "a b a "


def test_the_token_that_stops_is_not_seen(tokenizer: Tokenizer) -> None:
    comma = tokenizer.encode(",")
    deltas, _ = _stream(tokenizer, [*tokenizer.encode("one"), *comma], FinishReason.STOP)
    assert "".join(deltas) == "one"


async def test_the_space_of_a_first_word_is_between_prompt_and_output(tmp_path: Path) -> None:
    """A SentencePiece vocabulary writes it into the word's token; only that of a whole text is none of the text."""
    tokenizer = Tokenizer.from_gguf(write(tmp_path / "m.gguf", "llama", "default"))
    text = "the quick brown fox"
    tokens = tokenizer.encode(text)
    for cut in range(1, len(tokens)):
        output = SequenceText(tokenizer, SamplingParams(max_tokens=len(tokens)))
        prompt = output.echo_prompt(await prompt_text(tokenizer, tokens[:cut]), None).text
        last = len(tokens) - cut - 1
        pushed = [
            output.add_token(t, FinishReason.LENGTH if i == last else None).text for i, t in enumerate(tokens[cut:])
        ]
        assert prompt + "".join(pushed) == text
