"""Small vocabularies of each kind, trained on a generated corpus and written as GGUF files."""

import json
import random
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gguf import GGUFWriter
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_gguf_tokenizer

from paternoster_engine.model.detokenizer import IncrementalDetokenizer
from paternoster_engine.model.tokenizer import Tokenizer as Ours
from paternoster_engine.model.vocabulary.byte_level import CUTS
from paternoster_engine.model.weights.gguf_file import read_gguf

SPACE = "\u2581"
SCRIPTS = [
    "the quick brown fox isn't sure THAT HTTPServer's can't I'LL we'Ve don't naïve Straße ångström coöperate",
    "быстрая лиса прыгает через ленивую собаку Москва ёлка",
    "日本語のテキスト 中文字符测试 東京都 漢字かな交じり 你好世界",
    "한국어 문장입니다 서울특별시 안녕하세요",
    "العربية نص تجريبي مرحبا بالعالم שלום עולם",
    "हिन्दी में लिखा हुआ पाठ নমস্কার தமிழ் ไทยภาษา",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 😀 🏴‍☠️ ❤️ 🤷🏻‍♀️ ✨",
    "0 7 42 123 4567 3.14159 1,000,000 ½ ² Ⅷ ١٢٣ 2026-11-23 0x1F -5e-3",
    "def f(x): return x[::-1] if(a&&b){c+=1;} //comment <div class='x'> $HOME/.cache λx.x ==> !== #!/bin/sh \\n {{ }}",
    "e\u0301 \ufb01 \u200b \u00a0 ﷺ ｶﾞ \u0000 \ufeff �",
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CONTROL, OWN = ["<unk>", "<s>", "</s>", "<|im_end|>", "<|user|>"], ["<think>", "[TOOL]"]
DIGITS = ("smollm", "starcoder", "refact")
"""Cut before each digit, as llama.cpp and the models' own files have it; transformers forgets that of a GGUF file."""
KINDS: Mapping[str, tuple[str, str, str, dict[str, bool]]] = {
    **{pre: ("gpt2", pre, "llama", {}) for pre in CUTS},
    "llama": ("llama", "default", "phi3", {"add_space_prefix": True}),
    "gemma": ("llama", "default", "gemma2", {"add_space_prefix": False}),
}
Pair = tuple[Ours, Tokenizer]
GAPS = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "", "        "]


def corpus(lines: int, seed: int = 7) -> Iterator[str]:
    """Lines of mixed scripts, code and emoji."""
    chance = random.Random(seed)
    words = [script.split() for script in SCRIPTS]
    for _ in range(lines):
        some = chance.sample(words, 3)
        parts = [chance.choice(chance.choice(some)) + chance.choice(GAPS) for _ in range(chance.randrange(1, 14))]
        yield chance.choice(["", "", "", " ", "\n", "   "]) + "".join(parts)


def _train(tokenizer: Tokenizer, alphabet: list[str]) -> dict[str, Any]:
    trainer = trainers.BpeTrainer(
        vocab_size=1200, initial_alphabet=alphabet, limit_alphabet=300, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(corpus(1500, seed=1), trainer)
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


@cache
def byte_level() -> tuple[list[str], list[str]]:
    """Tokens by id, and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model = _train(tokenizer, pre_tokenizers.ByteLevel.alphabet())
    return sorted(model["vocab"], key=model["vocab"].__getitem__), [" ".join(merge) for merge in model["merges"]]


@cache
def pieces() -> list[str]:
    """Best first: what merges make in their order, then characters, as SentencePiece's trainer writes them."""
    tokenizer = Tokenizer(models.BPE())
    # A piece begins with a space or has none.
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(SPACE, "merged_with_next")
    model = _train(tokenizer, [])
    made = list(dict.fromkeys("".join(merge) for merge in model["merges"]))
    return [*made, *sorted(piece for piece in model["vocab"] if len(piece) == 1)]


def write(path: Path, kind: str, pre: str, architecture: str = "llama", **flags: bool) -> Mapping[str, Any]:
    """The fields of a new file. ``flags``: flags such as ``add_bos_token``."""
    writer = GGUFWriter(path, architecture)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    control, own = CONTROL, OWN
    if kind == "llama":
        made = pieces()
        tokens = [*control[:3], *BYTES, *made, *control[3:], *own]
        types = [2, 3, 3, *[6] * 256, *[1] * len(made), 3, 3, 4, 4]
        scores = [0.0] * 259 + [-float(i) for i in range(len(made))] + [-1000.0] * 4
        writer.add_token_scores(scores)
    else:
        plain, merges = byte_level()
        tokens = [*plain, *control, *own]
        types = [1] * len(plain) + [3] * len(control) + [4] * len(own)
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_unk_token_id(tokens.index("<unk>"))
    for name, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return read_gguf(path).fields


def pair_of(kind: str, folder: Path) -> Pair:
    """Ours and transformers' tokenizer of the same file."""
    model, pre, architecture, flags = KINDS[kind]
    path = folder / f"{kind}.gguf"
    ours = Ours.from_gguf(write(path, model, pre, architecture, **flags))
    theirs, _ = convert_gguf_tokenizer(*get_gguf_tokenizer(str(path))[:2])
    return ours, theirs


def lines_of(kind: str, count: int) -> list[str]:
    """That both read alike, and that decoding gives back."""
    lines = list(corpus(count))
    if kind in DIGITS:
        return ["".join(c for c in line if not c.isnumeric()) for line in lines]
    if CUTS[kind].normalizer if kind in CUTS else None:
        return [unicodedata.normalize("NFC", line) for line in lines]
    return lines


def check_lines(ours: Ours, expected: Sequence[Sequence[int]], lines: Sequence[str], texts: Sequence[str]) -> None:
    """That lines become these ids, and these the texts; also token by token."""
    for line, ids, text in zip(lines, expected, texts, strict=True):
        assert ours.encode(line) == ids
        assert ours.decode(ids, skip_special_tokens=False) == text
        detokenizer = IncrementalDetokenizer(ours, skip_special_tokens=False)
        # A character that was split would be there as U+FFFD; what is held back at the end was never whole.
        assert "".join(map(detokenizer.add_token, ids)) == text
        assert detokenizer.flush() == ""
