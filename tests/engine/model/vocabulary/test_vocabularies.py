"""Each kind of vocabulary that a GGUF file may have, against what transformers makes of the same file."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.engine.model.vocabulary.vocabularies import DIGITS, KINDS, SPACE, Pair, corpus, lines_of, pair_of, write

from paternoster_engine.model.detokenizer import IncrementalDetokenizer
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.vocabulary.from_json import TokenizerFiles


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Ours and transformers' tokenizer of the same file."""
    folder, files = tmp_path_factory.mktemp("vocabularies"), {}

    def make(kind: str) -> Pair:
        if kind not in files:
            files[kind] = pair_of(kind, folder)
        return files[kind]

    return make


def _same(pair: Pair, lines: list[str]) -> None:
    ours, theirs = pair
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(lines, add_special_tokens=False)]
    for line, ids in zip(lines, expected, strict=True):
        assert ours.encode(line) == ids
        assert ours.decode(ids, skip_special_tokens=False) == line


@pytest.mark.parametrize("kind", KINDS)
def test_encodes_as_transformers_does_and_decodes_back(made: Callable[[str], Pair], kind: str) -> None:
    _same(made(kind), lines_of(kind, 300))


@pytest.mark.parametrize("kind", DIGITS)
def test_each_digit_is_a_token(made: Callable[[str], Pair], kind: str) -> None:
    ours, _ = made(kind)
    assert [ours.decode([i]) for i in ours.encode("2026½7")] == list("2026½7")


@pytest.mark.parametrize("kind", KINDS)
def test_control_and_user_defined_tokens_are_found_in_the_text(made: Callable[[str], Pair], kind: str) -> None:
    ours, _ = made(kind)
    for text in ("<|user|>", "<|im_end|>", "<think>", "[TOOL]", "</s>", "<unk>"):
        ids = ours.encode(f"a{text}b")
        (found,) = [i for i in ids if ours.id_to_token(i) == text]
        assert ours.is_special(found) == (text not in ("<think>", "[TOOL]"))
        assert ours.decode(ours.encode(f"x{text}"), skip_special_tokens=False) == f"x{text}"


def test_a_prefix_of_a_space_is_put_in_front_and_behind_control_tokens(made: Callable[[str], Pair]) -> None:
    """llama.cpp does so for every SentencePiece vocabulary with add_space_prefix."""
    ours, _ = made("llama")
    assert ours.encode("a<|user|>a") == [*ours.encode("a"), *ours.encode("<|user|>"), *ours.encode("a")]
    assert ours.token_bytes(ours.encode("a")[0]).startswith(b" ")
    assert ours.encode("") == []
    without, _ = made("gemma")
    assert without.token_bytes(without.encode("a")[0]) == b"a"


@pytest.mark.parametrize(
    ("kind", "flags", "around"),
    [
        ("llama", {}, (["<s>"], [])),
        ("llama", {"add_bos_token": False}, ([], [])),
        ("llama", {"add_eos_token": True}, (["<s>"], ["</s>"])),
        ("gpt-2", {}, ([], [])),
        ("gpt-2", {"add_bos_token": True}, (["<s>"], [])),
        ("llama-bpe", {}, (["<s>"], [])),
        ("tekken", {"add_bos_token": False, "add_eos_token": True}, ([], ["</s>"])),
    ],
)
def test_what_is_put_around_a_prompt(
    kind: str, flags: dict[str, bool], around: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    model, pre, architecture, more = KINDS[kind]
    ours = Tokenizer.from_gguf(write(tmp_path / "m.gguf", model, pre, architecture, **(more | flags)))
    inner = ours.encode("hello there")
    ids = ours.encode("hello there", add_special_tokens=True)
    names = [ours.id_to_token(i) for i in ids]
    assert names == [*around[0], *[ours.id_to_token(i) for i in inner], *around[1]]


def test_the_end_of_a_turn_ends_an_answer(made: Callable[[str], Pair]) -> None:
    ours, _ = made("llama")
    assert [ours.id_to_token(i) for i in ours.eos_token_ids] == ["</s>", "<|im_end|>"]
    assert ours.special_names == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_a_message_of_harmony_is_not_the_answer(tmp_path: Path) -> None:
    fields = dict(write(tmp_path / "m.gguf", "gpt2", "gpt-4o"))
    names = {"<|im_end|>": "<|end|>", "<|user|>": "<|return|>", "<s>": "<|call|>"}
    fields["tokenizer.ggml.tokens"] = [names.get(token, token) for token in fields["tokenizer.ggml.tokens"]]
    ours = Tokenizer.from_gguf(fields)
    ends = {ours.id_to_token(i) for i in ours.eos_token_ids}
    assert ends >= {"<|return|>", "<|call|>"}
    assert "<|end|>" not in ends


@pytest.mark.parametrize(("kind", "pre"), [("gpt2", "gpt-2"), ("llama", "default")])
def test_what_ends_an_answer_is_what_llama_cpp_ends_at(kind: str, pre: str, tmp_path: Path) -> None:
    """``special_eog_ids`` of llama.cpp's src/llama-vocab.cpp, but for words: </s> is HTML in some vocabularies."""
    ends = [
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|flush|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>",
        "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "[e~[", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<fim-pad>", "<PAD>", "<|fim_repo|>",
        "<|repo_name|>", "<reponame>", "<|file_sep|>",
    ]  # fmt: skip
    words = ["<|im_start|>", "<|fim_middle|>", "<think>"]
    fields = _with_tokens(write(tmp_path / "m.gguf", kind, pre), [*ends, *words], 3)
    ours = Tokenizer.from_gguf(fields)
    assert {ours.id_to_token(i) for i in ours.eos_token_ids} == {"</s>", *ends}


def test_an_end_of_a_turn_with_the_type_of_a_word_ends_an_answer(tmp_path: Path) -> None:
    fields = _with_tokens(write(tmp_path / "m.gguf", "llama", "default"), ["<|eot_id|>", "<|end_of_text|>"], 1)
    fields = _with_tokens(fields, ["<EOT>", "<eos>"], 4)
    ours = Tokenizer.from_gguf(fields)
    ends = {ours.id_to_token(i): i for i in ours.eos_token_ids}
    assert {*ends} == {"</s>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>"}
    assert ours.is_special(ends["<|eot_id|>"])
    assert ours.decode(ours.encode("a<eos>")) == "a<eos>"


def test_the_ends_that_a_files_fields_name(tmp_path: Path) -> None:
    fields = dict(write(tmp_path / "m.gguf", "llama", "default"))
    user = fields["tokenizer.ggml.tokens"].index("<|user|>")
    assert user not in Tokenizer.from_gguf(fields).eos_token_ids
    for name in ("eot", "eom", "fim_pad", "fim_rep", "fim_sep"):
        assert user in Tokenizer.from_gguf(fields | {f"tokenizer.ggml.{name}_token_id": user}).eos_token_ids


def _with_tokens(fields: Mapping[str, Any], tokens: list[str], kind: int) -> dict[str, Any]:
    """The fields of a vocabulary that has ``tokens`` besides, those that it lacked with the type ``kind``."""
    new = [token for token in tokens if token not in fields["tokenizer.ggml.tokens"]]
    changed = dict(fields)
    for name, more in (("tokens", new), ("token_type", [kind] * len(new)), ("scores", [-1e4] * len(new))):
        if (key := f"tokenizer.ggml.{name}") in fields:
            changed[key] = [*fields[key], *more] if name == "tokens" else [*map(float, fields[key]), *more]
    return changed


def _by_scores(scores: dict[str, float], text: str) -> list[str]:
    """What SentencePiece says it does, at its word: join the best two neighbours until none make a piece."""
    symbols = list(text)
    while True:
        pairs = [(scores[a + b], -i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            return symbols
        at = -max(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


def test_pieces_are_joined_by_score(tmp_path: Path) -> None:
    fields = write(tmp_path / "m.gguf", "llama", "default")
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"].tolist()
    scores = {t: s for t, k, s in zip(tokens, types, fields["tokenizer.ggml.scores"].tolist(), strict=True) if k == 1}
    ours = Tokenizer.from_gguf(fields)
    for line in corpus(100, seed=3):
        expected: list[str] = []
        for symbol in _by_scores(scores, (SPACE + line).replace(" ", SPACE)):
            expected += [symbol] if symbol in scores else [f"<0x{byte:02X}>" for byte in symbol.encode()]
        assert [ours.id_to_token(i) for i in ours.encode(line)] == expected


@pytest.mark.parametrize("kind", ["gpt-2", "llama-bpe", "tekken", "gpt-4o", "llama", "gemma"])
@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=60))
def test_round_trip_of_any_text(made: Callable[[str], Pair], kind: str, text: str) -> None:
    ours, _ = made(kind)
    assume(SPACE not in text)  # to SentencePiece it is a space
    ids = ours.encode(text)
    assert ours.decode(ids, skip_special_tokens=False) == text
    assert len(text.encode()) <= ours.most_bytes(len(ids))


@pytest.mark.parametrize("kind", ["gpt-2", "llama", "gemma"])
@settings(max_examples=150, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_pieces_join_to_the_whole(made: Callable[[str], Pair], kind: str, data: st.DataObject, skip: bool) -> None:
    ours, _ = made(kind)
    ids = data.draw(st.lists(st.one_of(st.integers(0, ours.vocab_size - 1), st.integers(0, 300)), max_size=30))
    detokenizer = IncrementalDetokenizer(ours, skip)
    assert "".join([*map(detokenizer.add_token, ids), detokenizer.flush()]) == ours.decode(ids, skip)
    # And what continues a text is what decoding has more of both together.
    before = ours.encode("a")
    detokenizer = IncrementalDetokenizer(ours, skip, continues=True)
    joined = "".join([*map(detokenizer.add_token, ids), detokenizer.flush()])
    assert ours.decode(before, skip) + joined == ours.decode(before + ids, skip)


@pytest.mark.parametrize("kind", ["gpt-2", "llama", "gemma"])
@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40))
def test_pieces_never_split_a_character(made: Callable[[str], Pair], kind: str, text: str) -> None:
    ours, _ = made(kind)
    assume(SPACE not in text)
    detokenizer, seen = IncrementalDetokenizer(ours, skip_special_tokens=False), ""
    for token_id in ours.encode(text):
        seen += detokenizer.add_token(token_id)
        assert text.startswith(seen)
    assert seen + detokenizer.flush() == text


def test_decodes_whole_text_as_transformers_does(made: Callable[[str], Pair]) -> None:
    for kind in ("gpt-2", "llama", "gemma"):
        ours, theirs = made(kind)
        for line in corpus(100, seed=5):
            ids = ours.encode(f"{line}<|user|>{line}")
            for skip in (False, True):
                assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "t5"}, "tokenizer.ggml.model is 't5': built in are 'gpt2'.*'llama'"),
        ({"model": ["llama"]}, "tokenizer.ggml.model is"),
        ({"scores": None}, "no field 'tokenizer.ggml.scores'"),
        ({"scores": [0.0]}, r"length of tokenizer.ggml.scores is 1: must be \d+"),
        ({"scores": "x"}, "scores is 'x': must be a list of finite numbers"),
        ({"scores": [float("nan")] * 10}, "scores is .*must be a list of finite numbers"),
        ({"add_space_prefix": 1}, "add_space_prefix is 1: must be true or false"),
        ({"add_bos_token": "yes"}, "add_bos_token is 'yes': must be true or false"),
        ({"bos_token_id": None, "add_bos_token": True}, "add_bos_token is True: must be false without"),
        ({"token_type": [1]}, r"length of tokenizer.ggml.token_type is 1: must be \d+"),
        ({"token_type": 7}, "token_type is 7: must be a list"),
        ({"unknown_token_id": 2**31}, "unknown_token_id is 2147483648: must be a whole number"),
    ],
)
def test_fields_that_say_nothing_sensible_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    fields = dict(write(tmp_path / "m.gguf", "llama", "default"))
    fields |= {f"tokenizer.ggml.{name}": value for name, value in change.items()}
    with pytest.raises(UnsupportedModelError, match=message) as refused:
        Tokenizer.from_gguf({name: value for name, value in fields.items() if value is not None})
    assert len(str(refused.value)) < 400


def test_a_byte_without_a_token_is_named(tmp_path: Path) -> None:
    fields = dict(write(tmp_path / "m.gguf", "llama", "default"))
    fields["tokenizer.ggml.tokens"] = [t.replace("<0x7F>", "x7F") for t in fields["tokenizer.ggml.tokens"]]
    with pytest.raises(UnsupportedModelError, match="no token <0x7F>: all 256 bytes"):
        Tokenizer.from_gguf(fields)


@pytest.mark.parametrize("pieces", [["a" * 1_000], [f"{i:x}" * 100 for i in range(50_000)]])
def test_pieces_that_would_take_long_are_refused(pieces: list[str], tmp_path: Path) -> None:
    fields = dict(write(tmp_path / "m.gguf", "llama", "default"))
    for name, more in (("tokens", pieces), ("scores", [0.0] * len(pieces)), ("token_type", [1] * len(pieces))):
        fields[f"tokenizer.ggml.{name}"] = [*list(fields[f"tokenizer.ggml.{name}"]), *more]
    for name in ("scores", "token_type"):
        fields[f"tokenizer.ggml.{name}"] = [float(i) for i in fields[f"tokenizer.ggml.{name}"]]
    with pytest.raises(UnsupportedModelError, match=r"pieces of up to \d+ characters"):
        Tokenizer.from_gguf(fields)


def test_a_tokenizer_json_of_pieces_is_read(made: Callable[[str], Pair]) -> None:
    for kind in ("llama", "gemma"):
        ours, theirs = made(kind)
        read = Tokenizer.from_json(TokenizerFiles(theirs.to_str(), {"bos_token": "<s>"}))
        for line in corpus(100, seed=9):
            assert read.encode(line) == theirs.encode(line, add_special_tokens=False).ids
            assert read.decode(read.encode(line)) == ours.decode(ours.encode(line)) == line


def test_a_control_token_that_merges_would_make_stays_text(tmp_path: Path) -> None:
    """A user spells ``</s>``, and the vocabulary has ``</`` and ``s>``."""
    fields = dict(write(tmp_path / "m.gguf", "llama", "default"))
    for name, more in (("tokens", ["</", "s>"]), ("scores", [0.0, 0.0]), ("token_type", [1, 1])):
        value = fields[f"tokenizer.ggml.{name}"]
        fields[f"tokenizer.ggml.{name}"] = [*(value if name == "tokens" else value.tolist()), *more]
    ours = Tokenizer.from_gguf(fields)
    (message,) = ours.marker.mark_messages([{"role": "user", "content": "x</s>"}])
    assert not any(map(ours.is_special, ours.encode(message["content"])))


@pytest.mark.parametrize(
    ("named_templates", "template"),
    [
        (None, None),
        ("a", "a"),
        ([{"name": "tool_use", "template": "b"}, {"name": "default", "template": "c"}], "c"),
        ([{"name": "tool_use", "template": "b"}], UnsupportedModelError),
        ([{"name": "default", "template": 1}], UnsupportedModelError),
        ([{"name": "default", "template": "c"}, {"name": "tool_use", "template": 1}], UnsupportedModelError),
        ([{"name": "default", "template": "c"}, *[{"name": "tool_use", "template": "b"}] * 2], UnsupportedModelError),
        (["x"], UnsupportedModelError),
    ],
)
def test_the_default_of_named_templates(made: Callable[[str], Pair], named_templates: Any, template: Any) -> None:
    document = made("gemma")[1].to_str()
    if template is UnsupportedModelError:
        with pytest.raises(UnsupportedModelError, match="chat_template is"):
            Tokenizer.from_json(TokenizerFiles(document, {"chat_template": named_templates}))
    else:
        assert (
            Tokenizer.from_json(TokenizerFiles(document, {"chat_template": named_templates})).chat_template == template
        )
