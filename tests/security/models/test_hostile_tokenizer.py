"""Tokenizers that would take a client's text for minutes or gigabytes: refused before the library reads them.

The other way round: what published tokenizers are made of is read.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.vocabulary import bounds
from paternoster_engine.model.vocabulary.charsmap import CharsmapError, charsmap_growth
from paternoster_engine.model.vocabulary.from_json import TokenizerFiles, read_json_vocabulary

SPACE = "\u2581"


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern: str, kind: str = "Regex") -> dict[str, Any]:
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": "Isolated", "invert": False}


def chain(*steps: dict[str, Any], name: str = "normalizers") -> dict[str, Any]:
    return {"type": "Sequence", name: list(steps)}


def added(content: str, i: int = 3) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": content, "special": True, **flags}


def template(**parts: Any) -> dict[str, Any]:
    token = {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}
    return {"type": "TemplateProcessing", "special_tokens": token, "pair": [], **parts}


def document(**change: Any) -> dict[str, Any]:
    """A whole tokenizer.json with some sections changed."""
    model = {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2}, "merges": []}
    sound = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None}
    return {"version": "1.0", **sound, "decoder": {**BYTE_LEVEL}, "model": model, **change}


def charsmap(texts: dict[bytes, bytes]) -> bytes:
    """A double array of darts-clone with a block of 256 for the children of each node."""
    units, strings = np.zeros(256 * (2 + sum(map(len, texts))), "<u4"), b""
    places: dict[bytes, int] = {b"": 0}
    blocks = iter(range(256, len(units), 256))

    def children(prefix: bytes, block: int) -> None:
        node = places[prefix]
        units[node] |= (node ^ block) << 10
        if prefix in texts:
            nonlocal strings
            units[node] |= 1 << 8
            units[block] = 1 << 31 | len(strings)
            strings += texts[prefix] + b"\0"
        for byte in sorted({text[len(prefix)] for text in texts if text.startswith(prefix) and text != prefix}):
            places[prefix + bytes((byte,))] = block ^ byte
            units[block ^ byte] = byte
            children(prefix + bytes((byte,)), next(blocks))

    children(b"", next(blocks))
    return (units.nbytes).to_bytes(4, "little") + units.tobytes() + strings


def compiled(texts: dict[bytes, bytes]) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(texts)).decode()}


LIGATURE = {"\ufdfa".encode(): "\u0635\u0644\u0649".encode() * 5, b"\t": b" "}
"""Longest of Unicode's forms in SentencePiece's own map: a letter of 3 bytes becomes 30."""
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
AROUND = template(single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}])
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama 3": {
        "pre_tokenizer": chain(split(LLAMA3), BYTE_LEVEL, name="pretokenizers"),
        "post_processor": chain({**BYTE_LEVEL, "use_regex": True}, AROUND, name="processors"),
    },
    "Qwen 3": {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": chain(split(LLAMA3.replace("{1,3}", "")), BYTE_LEVEL, name="pretokenizers"),
    },
    "Llama 2": {"normalizer": chain({"type": "Prepend", "prepend": SPACE}, replace(" ", SPACE))},
    "Gemma": {"normalizer": replace(" ", SPACE), "pre_tokenizer": split(" ", "String")},
    "DeepSeek LLM": {
        "pre_tokenizer": chain(
            split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(r"\s+$"), split("[一-龥]+"),
            {"type": "Digits", "individual_digits": True}, BYTE_LEVEL, name="pretokenizers",
        ),
    },
    "BERT": {"normalizer": BERT | {"strip_accents": None}, "pre_tokenizer": {"type": "BertPreTokenizer"}},
    "XLM-R": {
        "normalizer": chain(compiled(LIGATURE), replace(" {2,}", SPACE, "Regex")),
        "pre_tokenizer": chain({"type": "WhitespaceSplit"}, METASPACE, name="pretokenizers"),
    },
    "ALBERT": {
        "normalizer": chain(
            replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            compiled(LIGATURE),
        ),
        "pre_tokenizer": METASPACE,
    },
    "Llasa, with sounds": {"added_tokens": [added(f"<|s_{i}|>", i + 3) for i in range(70_000)]},
}  # fmt: skip

LONG = "x" * 10_000_000
HOSTILE: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "a chain that doubles": (
        lambda: {"normalizer": chain(*[replace("a", "aa")] * 30)},
        r"normalizer and pre_tokenizer may make 1073741824 bytes of one: must be at most 256",
    ),
    "a text for each byte": (lambda: {"normalizer": replace("a", LONG)}, "make 10000000 bytes of one"),
    "a text between all": (lambda: {"normalizer": replace("(?=a)|b", "y" * 300, "Regex")}, "make 301 bytes of one"),
    "a long beginning": (lambda: {"normalizer": {"type": "Prepend", "prepend": LONG}}, "make 10000001 bytes of one"),
    "forms that undo each other": (
        lambda: {"normalizer": chain(*[{"type": "NFKD"}, replace(" ", "\ufdfa")] * 4)},
        "make 1185921 bytes of one",
    ),
    "bytes of bytes": (
        lambda: {"pre_tokenizer": chain(*[BYTE_LEVEL] * 20, name="pretokenizers")},
        "make 1048576 bytes of one",
    ),
    "a map with a long text": (lambda: {"normalizer": compiled({b"a": b"y" * 5_000})}, "make 5000 bytes of one"),
    "a map after a form": (
        lambda: {"normalizer": chain({"type": "NFKD"}, compiled({b"a": b"y" * 60}))},
        "make 660 bytes of one",
    ),
    "a map that is none": (
        lambda: {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "normalizer.precompiled_charsmap is no compiled map: its array has 0 bytes",
    ),
    "a chain without end": (
        lambda: {"normalizer": chain(*[chain(*[{"type": "NFC"}] * 20)] * 20)},
        "normalizer has more than 32 steps",
    ),
    "a long chain": (
        lambda: {"pre_tokenizer": chain(*[{"type": "Whitespace"}] * 40, name="pretokenizers")},
        "pre_tokenizer has 40 steps: must be at most 32",
    ),
    "a pattern that backtracks": (
        lambda: {"pre_tokenizer": chain({"type": "Whitespace"}, split("(a+)+b"), name="pretokenizers")},
        r"pre_tokenizer.pretokenizers\[1\].pattern.Regex is '\(a\+\)\+b': must be a pattern that takes a time",
    ),
    "words without end": (
        lambda: {"model": {"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**9}},
        "model.max_input_chars_per_word is 1000000000: must be a whole number from 0 to 200",
    ),
    "a long affix": (
        lambda: {"model": {"type": "WordPiece", "vocab": {"a": 0}, "continuing_subword_prefix": LONG}},
        "model.continuing_subword_prefix is 'xxx.* of 10000000 characters: must be of at most 64",
    ),
    "a long token": (
        lambda: {"model": {"type": "BPE", "vocab": {"a": 0, LONG: 1}, "merges": []}},
        "model.vocab has 'xxx.* of 10000000 characters: must be of at most 2048",
    ),
    "a long piece": (
        lambda: {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [LONG, 0.0]]}},
        "model.vocab has 'xxx.* of 10000000 characters",
    ),
    "chance": (
        lambda: {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.5}},
        "model.dropout is 0.5: must be null",
    ),
    "a long added token": (lambda: {"added_tokens": [added(LONG)]}, "added_tokens has 'xxx.* of 10000000 characters"),
    "a text many times": (
        lambda: {"post_processor": template(single=[{"Sequence": {"id": "A", "type_id": 0}}] * 1_000)},
        "post_processor.single has .*: must have each text once",
    ),
    "much around a text": (
        lambda: {"post_processor": template(single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 1_000)},
        "post_processor.single has 1000 tokens: must be at most 256",
    ),
    "a token of many": (
        lambda: {
            "post_processor": {
                **AROUND, "special_tokens": {"<s>": {"id": "<s>", "ids": [0] * 9_999, "tokens": ["<s>"] * 9_999}}
            }
        },
        "post_processor.single has 10000 tokens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_models_publish_is_read(name: str) -> None:
    text = json.dumps(document(**PUBLISHED[name]))
    backend = read_json_vocabulary(TokenizerFiles(text)).backend
    if name != "DeepSeek LLM":  # one of its patterns is replaced
        assert backend.to_str() == Backend.from_str(text).to_str(), "the file is run as it is"


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_take_long_is_refused_by_name(name: str) -> None:
    change, expected = HOSTILE[name]
    with pytest.raises(UnsupportedModelError, match=expected) as refused:
        read_json_vocabulary(TokenizerFiles(json.dumps(document(**change()))))
    assert str(refused.value).startswith("tokenizer.json: ")
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"added_tokens": {"x" * 3_000: 3}}, r"added_tokens.json has 'xxx.* of 3000 characters"),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"3": {"content": "x" * 3_000}}}},
            r"tokenizer_config.json: added_tokens_decoder has 'xxx.* of 3000 characters",
        ),
        ({"tokenizer_config": {"eos_token": "x" * 3_000}}, r"tokenizer_config.json: eos_token has 'xxx"),
        ({"special_tokens_map": {"bos_token": "x" * 3_000}}, r"special_tokens_map.json: bos_token has 'xxx"),
    ],
)
def test_tokens_of_the_other_files_are_bounded(files: dict[str, Any], expected: str) -> None:
    with pytest.raises(UnsupportedModelError, match=expected):
        read_json_vocabulary(TokenizerFiles(json.dumps(document()), **files))


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("MOST_TOKENS", "vocab has 3"), ("MOST_ADDED", "added_tokens has 3")):
        with monkeypatch.context() as patched:
            patched.setattr(bounds, name, 2)
            with pytest.raises(UnsupportedModelError, match=f"{expected} elements: must be at most 2"):
                bounds.bound_tokenizer(document(added_tokens=[added(c) for c in "xyz"] if "ADDED" in name else []))
    monkeypatch.setattr(bounds, "MOST_ADDED_CHARACTERS", 5)
    with pytest.raises(UnsupportedModelError, match="added_tokens has 6 characters in all: must be at most 5"):
        bounds.bound_tokenizer(document(added_tokens=[added("xyz"), added("uvw")]))


def test_many_tokens_of_another_file_are_added_at_once() -> None:
    """One by one the library would make its automaton anew for each."""
    listed = {str(i + 3): {"content": f"<|{i}|>"} for i in range(20_000)}
    files = TokenizerFiles(json.dumps(document()), tokenizer_config={"added_tokens_decoder": listed})
    backend = read_json_vocabulary(files).backend
    assert backend.encode("<|19999|><|0|>", add_special_tokens=False).ids == [20_002, 3]


def test_maps_are_measured() -> None:
    assert charsmap_growth(charsmap({b"ab": b"x" * 9, b"c": b"yy"}), folded=False) == 4.5
    assert charsmap_growth(charsmap(LIGATURE), folded=False) == 10
    assert charsmap_growth(charsmap(LIGATURE), folded=True) == 1
    assert charsmap_growth(charsmap({b"a" * 50: b"x"}), folded=False) == 1
    for broken, expected in (
        (charsmap({b"a" * 70: b"x"}), "more than 64 bytes"),
        (charsmap({b"a": b"x"})[:-2], "has a text at 0 of 0 bytes"),
        (b"\1\0\0\0abcdef", "array has 1 bytes"),
        (bytes(2**20 + 1), "at most 1048576"),
    ):
        with pytest.raises(CharsmapError, match=expected):
            charsmap_growth(broken, folded=False)
