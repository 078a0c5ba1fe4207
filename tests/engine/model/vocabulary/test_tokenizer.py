"""The tokenizer built from a GGUF file against transformers' own from the same file."""

from unittest.mock import Mock

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.engine.model.vocabulary.vocabularies import check_lines, lines_of
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from paternoster_engine.model.detokenizer import IncrementalDetokenizer
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.vocabulary.spelling import ByteLevel

TEXTS = [
    "",
    " ",
    "\n\n\n  x",
    "Hello, world! It's 2024, isn't it?",
    "1234567890 3.14 1,000",
    "def f(x):\n\treturn x  # tab",
    "naïve café, Straße, ångström",
    "日本語とemoji 👩‍👩‍👧‍👦🏽 mixed",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>tail",
    "a<|im_end|> b <|not_special|>",
    "\u0000\u0001\ufffd\u200b e\u0301",
    "Ġ Ċ literal stand-ins",
]


@pytest.fixture(scope="module")
def theirs(source: ModelSource) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(str(source.path.parent), gguf_file=source.path.name)


# To the model's own tokenizer and to ours superscripts are digits; transformers drops that rule of a GGUF.
WRITTEN = st.characters(codec="utf-8", exclude_categories=("Cs", "No", "Nl"))


@settings(max_examples=200, deadline=None)
@given(st.text(WRITTEN, max_size=80))
def test_encodes_as_transformers_does(tokenizer: Tokenizer, theirs: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS)
def test_encodes_texts_and_decodes_them_back(tokenizer: Tokenizer, theirs: PreTrainedTokenizerBase, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == theirs.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_ten_thousand_lines(tokenizer: Tokenizer, theirs: PreTrainedTokenizerBase) -> None:
    lines = lines_of("smollm", 10_000)
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    # It lacks a few bytes, so that some text is lost, and to transformers the same.
    texts = theirs.batch_decode(expected, clean_up_tokenization_spaces=False)
    check_lines(tokenizer, expected, lines, texts)
    assert sum(text == line for text, line in zip(texts, lines, strict=True)) > 9_000


def test_end_tokens_come_from_the_file(tokenizer: Tokenizer) -> None:
    assert [tokenizer.id_to_token(i) for i in tokenizer.eos_token_ids] == ["<|im_end|>", "<|endoftext|>", "<reponame>"]
    assert tokenizer.id_to_token(10**6) is None


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 49_151), max_size=40), st.booleans())
@example([2, 165, 2, 165, 17], False)
def test_pieces_join_to_the_whole(tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    detokenizer = IncrementalDetokenizer(tokenizer, skip)
    pieces = [detokenizer.add_token(i) for i in ids]
    assert "".join([*pieces, detokenizer.flush()]) == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_pieces_never_split_a_character(tokenizer: Tokenizer, text: str) -> None:
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    seen = ""
    ids = tokenizer.encode(text)
    assume(tokenizer.decode(ids, skip_special_tokens=False) == text)  # the vocabulary lacks a few rare bytes
    for token_id in ids:
        seen += detokenizer.add_token(token_id)
        assert text.startswith(seen)
        assert len(text[: len(seen)].encode()) == len(seen.encode())
    assert seen == text
    assert detokenizer.flush() == ""


def test_broken_bytes_are_not_held_back_for_long(tokenizer: Tokenizer) -> None:
    """A continuation byte that continues nothing comes out at once, as does a run of them."""
    lead, continuation = (
        next(i for i in range(49_152) if tokenizer.token_bytes(i) == byte) for byte in (b"\xf0", b"\x80")
    )
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert detokenizer.add_token(continuation) == "\ufffd"
    for _ in range(5):
        assert len(detokenizer.add_token(lead)) <= 1
    assert detokenizer.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model is 'bert': built in are 'gpt2'"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "odd"},
            "pre is 'odd': built in are gpt-2, phi-2, olmo, smollm, starcoder, refact, dbrx",
        ),
    ],
)
def test_unknown_tokenizers_are_refused(metadata: dict, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        Tokenizer.from_gguf(metadata)


def test_another_template_is_of_the_vocabulary_that_is_known(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks are the template's own."""
    marker, other = tokenizer.marker, tokenizer.with_template("{{ messages }}")
    assert (other.chat_template, other.tool_use_template) == ("{{ messages }}", None)
    assert tokenizer.chat_template != other.chat_template
    assert other.marker is not marker
    monkeypatch.setattr(ByteLevel, "most_bytes", Mock(side_effect=AssertionError("looked at once more")))
    assert tokenizer.with_template("a").most_bytes(7) == tokenizer.most_bytes(7)
