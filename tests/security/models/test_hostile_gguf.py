"""GGUF files whose numbers lie: each ends in one line that names the field, before anything is allocated for it."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from paternoster_engine.model.errors import ModelError

Load = Callable[[Path], None]

HUGE = (2**64 - 1, 2**63, 2**62, 2**48, 2**33)
HEAD = 9_000
"""Bytes of the tiny file before its tensors."""
U32, F32, STRING, ARRAY = 4, 6, 8, 9


def _string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def _after(data: bytes, key: str) -> int:
    """Where the type of the field ``key`` begins."""
    return data.index(_string(key)) + len(_string(key))


def _field(data: bytes, key: str, kind: int, value: bytes) -> bytes:
    """``data`` with a field of 4 bytes replaced."""
    start = _after(data, key)
    return data[:start] + struct.pack("<I", kind) + value + data[start + 8 :]


def _u32(key: str, value: int) -> Callable[[bytes], bytes]:
    return lambda data: _field(data, key, U32, struct.pack("<I", value))


def _array_length(key: str, length: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        start = _after(data, key) + 8
        return data[:start] + struct.pack("<Q", length) + data[start + 8 :]

    return change


def _tensor(name: str, offset: int, form: str, value: float) -> Callable[[bytes], bytes]:
    """Change what is ``offset`` bytes behind the name of a tensor."""

    def change(data: bytes) -> bytes:
        start = data.index(_string(name)) + len(_string(name)) + offset
        return data[:start] + struct.pack(form, value) + data[start + struct.calcsize(form) :]

    return change


def _replace(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new, 1)


def _nested(depth: int) -> Callable[[bytes], bytes]:
    """An array of arrays of arrays ... of one another, as the first field."""

    def change(data: bytes) -> bytes:
        value = struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U32, 0)
        count = struct.unpack_from("<Q", data, 16)[0]
        return data[:16] + struct.pack("<Q", count + 1) + _string("x") + struct.pack("<I", ARRAY) + value + data[24:]

    return change


TOKENS = "tokenizer.ggml.tokens"
CASES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "it has 0 bytes"),
    "header only": (lambda data: data[:24], "number of tensors is 11"),
    "cut in the fields": (lambda data: data[:200], "number of tensors is 11|ends"),
    "cut in the tokens": (lambda data: data[:2000], "ends|elements"),
    "cut in the tensors": (lambda data: data[:-1], "ends"),
    "big-endian": (lambda data: data[:4] + struct.pack(">I", 3) + data[8:], "version"),
    "version 1": (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "version is 1"),
    "name too long": (_replace(_string("tiny"), struct.pack("<Q", 2**62) + b"tiny"), "general.name"),
    "name is no UTF-8": (_replace(b"tiny", b"\xff\xfe\xfd\xfc"), "general.name"),
    "key is no UTF-8": (_replace(b"general.name", b"general.n\xffme"), "UTF-8"),
    "unknown type of a field": (lambda d: _field(d, "llama.block_count", 77, b"\0" * 4), "llama.block_count"),
    "nested array": (_nested(2), "x"),
    "array nested deep": (_nested(5000), "x"),
    "no layers": (_u32("llama.block_count", 0), "block_count is 0"),
    "4 billion layers": (_u32("llama.block_count", 2**32 - 1), "block_count is 4294967295"),
    "no heads": (_u32("llama.attention.head_count", 0), "head_count is 0"),
    "4 billion heads": (_u32("llama.attention.head_count", 2**32 - 1), "head_count is 4294967295"),
    "3 heads of 32": (_u32("llama.attention.head_count", 3), "head_count|q_proj"),
    "no key heads": (_u32("llama.attention.head_count_kv", 0), "head_count_kv is 0"),
    "5 key heads of 2": (_u32("llama.attention.head_count_kv", 5), "head_count_kv is 5"),
    "no hidden": (_u32("llama.embedding_length", 0), "embedding_length is 0"),
    "hidden of 4 billion": (_u32("llama.embedding_length", 2**32 - 1), "embedding_length|shape|key_length|head_dim"),
    "hidden of 64": (_u32("llama.embedding_length", 64), "shape"),
    "no context": (_u32("llama.context_length", 0), "context_length is 0"),
    "context of 4 billion": (_u32("llama.context_length", 2**32 - 1), "context_length is 4294967295"),
    "no MLP": (_u32("llama.feed_forward_length", 0), "feed_forward_length is 0"),
    "MLP of 2 billion": (_u32("llama.feed_forward_length", 2**31), "feed_forward_length|shape"),
    "eps is NaN": (
        lambda d: _field(d, "llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", float("nan"))),
        "epsilon is nan",
    ),
    "eps is negative": (
        lambda d: _field(d, "llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", -1.0)),
        "epsilon is -1",
    ),
    "heads are a float": (
        lambda d: _field(d, "llama.attention.head_count", F32, struct.pack("<f", 2.0)),
        "head_count is 2.0",
    ),
    "merge of one part": (_replace(_string("a b"), _string("a_b")), "merges"),
    "merge of an unknown token": (
        _replace(_string("a b"), _string("a \t")),
        "BPE|merges",
    ),
    "end token outside": (_u32("tokenizer.ggml.eos_token_id", 2**32 - 1), "eos_token_id is 4294967295"),
    "another tokenizer": (_replace(_string("gpt2"), _string("spm2")), "tokenizer.ggml.model"),
    "no such field": (_replace(b"llama.context_length", b"llama.context_lengtX"), "no field 'llama.context_length'"),
    "no such tensor": (_replace(b"blk.0.ffn_down", b"blk.0.ffn_dowX"), "has no tensor"),
    "duplicate tensor": (_replace(b"blk.0.ffn_up.weight", b"blk.0.attn_q.weight"), "twice"),
    "tensor of 2^32 dimensions": (_tensor("output_norm.weight", 0, "<I", 2**32 - 1), "dimensions"),
    "tensor of no dimensions": (_tensor("output_norm.weight", 0, "<I", 0), "dimensions|shape"),
    "tensor of size 0": (_tensor("output_norm.weight", 4, "<Q", 0), "shape|is 0"),
    "unknown type of a tensor": (_tensor("output_norm.weight", 12, "<I", 999), "type"),
    "quantized into no whole blocks": (_tensor("token_embd.weight", 20, "<I", 12), "multiple|ends|type|beyond"),
    "tensor that has another shape": (_tensor("token_embd.weight", 4, "<Q", 16), "shape"),
    "tensors in the same bytes": (
        _tensor("output_norm.weight", 16, "<Q", 0),
        "'output_norm.weight'.* overlap: must have",
    ),
    **{f"{n} fields": (lambda d, n=n: d[:16] + struct.pack("<Q", n) + d[24:], f"{n}") for n in HUGE},
    **{f"{n} tensors": (lambda d, n=n: d[:8] + struct.pack("<Q", n) + d[16:], f"{n}") for n in HUGE},
    **{f"{n} tokens": (_array_length(TOKENS, n), f"tokens.*{n}") for n in HUGE},
    **{f"{n} token types": (_array_length("tokenizer.ggml.token_type", n), f"token_type.*{n}") for n in HUGE},
    **{f"tensor at {n}": (_tensor("output_norm.weight", 16, "<Q", n), "output_norm.*from byte") for n in HUGE},
    **{f"tensor of {n}": (_tensor("token_embd.weight", 12, "<Q", n), f"token_embd.*{n}") for n in HUGE},
}


@pytest.mark.parametrize("file", ["tiny_gguf", "tiny_pieces"])
def test_the_sound_file_loads(file: str, request: pytest.FixtureRequest, load: Load, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(request.getfixturevalue(file))
    load(path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("case", CASES)
def test_a_lie_is_named(case: str, tiny_gguf: bytes, load: Load, tmp_path: Path) -> None:
    change, words = CASES[case]
    hostile = change(tiny_gguf)
    assert hostile != tiny_gguf
    path = tmp_path / "model.gguf"
    path.write_bytes(hostile)
    with pytest.raises(ModelError, match=words) as refused:
        load(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def _mutated(data: bytes, seed: int) -> bytes:
    """Some bytes of the head changed, or numbers written over it, or a part left out or doubled, or the end cut."""
    chance, head = random.Random(seed), bytearray(data[:HEAD])
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(head) - 8)
        match chance.randrange(6):
            case 0 | 1:
                head[at] = chance.randrange(256)
            case 2:
                head[at : at + 4] = struct.pack("<I", chance.choice((0, 1, 8, 9, 2**31, 2**32 - 1)))
            case 3:
                head[at : at + 8] = struct.pack("<Q", chance.choice((0, 1, 2**32, *HUGE)))
            case 4:
                del head[at : at + chance.randrange(1, 64)]
            case 5:
                head[at:at] = head[at : at + chance.randrange(1, 64)]
    whole = bytes(head) + data[HEAD:]
    return whole[: chance.randrange(len(whole))] if chance.random() < 0.1 else whole


SCORES = "tokenizer.ggml.scores"
PIECES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    **{f"{n} scores": (_array_length(SCORES, n), f"scores.*{n}") for n in HUGE},
    "a score less": (_array_length(SCORES, 257), "tokenizer.ggml|type|key"),
    "scores are texts": (lambda d: _field_kind(d, SCORES, STRING), "scores|element"),
    "a score is NaN": (lambda d: _first_of(d, SCORES, float("nan")), "scores.*finite"),
    "a score is infinite": (lambda d: _first_of(d, SCORES, float("-inf")), "scores.*finite"),
    "a byte is missing": (_replace(_string("<0x41>"), _string("<0x4g>")), "no token <0x41>"),
    "begin token outside": (_u32("tokenizer.ggml.bos_token_id", 2**31), "bos_token_id is 2147483648"),
    "no begin token": (_replace(b"ggml.bos_token_id", b"ggml.bas_token_id"), "add_bos_token is True"),
    "prefix is no flag": (
        lambda d: d.replace(
            _string("tokenizer.ggml.add_space_prefix") + struct.pack("<I", 7),
            _string("tokenizer.ggml.add_space_prefix") + struct.pack("<I", 0),
            1,
        ),
        "add_space_prefix is 1: must be true or false",
    ),
}


def _first_of(data: bytes, key: str, value: float) -> bytes:
    start = _after(data, key) + 16
    return data[:start] + struct.pack("<f", value) + data[start + 4 :]


def _field_kind(data: bytes, key: str, kind: int) -> bytes:
    start = _after(data, key) + 4
    return data[:start] + struct.pack("<I", kind) + data[start + 4 :]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("case", PIECES)
def test_a_lie_of_pieces_is_named(case: str, tiny_pieces: bytes, load: Load, tmp_path: Path) -> None:
    change, words = PIECES[case]
    hostile = change(tiny_pieces)
    assert hostile != tiny_pieces
    path = tmp_path / "model.gguf"
    path.write_bytes(hostile)
    with pytest.raises(ModelError, match=words) as refused:
        load(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("file", "first"), [("tiny_gguf", n) for n in range(0, 400, 50)] + [("tiny_pieces", 0)])
def test_mutations_load_or_are_refused(
    file: str, first: int, request: pytest.FixtureRequest, load: Load, tmp_path: Path
) -> None:
    path, sound = tmp_path / "model.gguf", request.getfixturevalue(file)
    for seed in range(first, first + 50):
        path.write_bytes(_mutated(sound, seed))
        fault = None
        try:
            load(path)
        except ModelError as refused:
            fault = repr(refused) if "\n" in str(refused) else None
        except Exception as error:
            fault = repr(error)
        assert fault is None, f"seed {seed}"
