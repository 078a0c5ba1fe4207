"""Byte-level BPE from a GGUF file: how text is cut before it, by the name that ``tokenizer.ggml.pre`` gives.

The names are those of llama.cpp's ``src/llama-vocab.cpp``; the patterns are those of the models' own tokenizer.json,
which that file cites where its regular expressions cannot have them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, shorten_value

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""English contractions."""
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
"""Line ends, then spaces but for the one that leads a word in, then that where no word follows."""
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _word_pattern(digits: str) -> str:
    """Contractions; words with the character that leads them in; ``digits`` of a number; punctuation; the rest."""
    return rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"


def _cased_words(ending: str, digits: str) -> str:
    """Write a pattern in which words are cut where capitals begin, and end with their contraction."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{_UPPER}*{_LOWER}+{ending}|{lead}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """What is done to text before BPE."""

    cutter: pre_tokenizers.PreTokenizer
    normalizer: normalizers.Normalizer | None = None
    whole_words: bool = False
    """Whether a word that is a token is that token, whatever merges would make of it."""
    adds_bos: bool = False
    """Unless the file says otherwise."""


def _gpt2_splitter(*before: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_GPT2 = PreTokenization(_gpt2_splitter())
_DIGITS = PreTokenization(_gpt2_splitter(pre_tokenizers.Digits(individual_digits=True)))
_CL100K = PreTokenization(_split_by(_word_pattern(r"\p{N}{1,3}")))
_LLAMA3 = PreTokenization(_CL100K.cutter, whole_words=True, adds_bos=True)
_QWEN2 = PreTokenization(_split_by(_word_pattern(r"\p{N}")), normalizers.NFC())
_TEKKEN = PreTokenization(_split_by(_cased_words("", r"\p{N}")), whole_words=True, adds_bos=True)
_O200K = PreTokenization(_split_by(_cased_words(f"{_ENDINGS}?", r"\p{N}{1,3}")))
CUTS = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _DIGITS),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _CL100K),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
    "tekken": _TEKKEN,
    **dict.fromkeys(("gpt-4o", "llama4"), _O200K),
}
"""Patterns by ``tokenizer.ggml.pre``."""


def cut_of(fields: Fields) -> PreTokenization:
    """Raises :class:`UnsupportedModelError` for a name that is not built in."""
    pre = fields.read_text("tokenizer.ggml.pre", default=None)
    if pre not in CUTS:
        raise UnsupportedModelError(f"tokenizer.ggml.pre is {shorten_value(pre)}: built in are {', '.join(CUTS)}")
    return CUTS[pre]


def byte_level(fields: Fields, tokens: Sequence[str], cut: PreTokenization) -> tokenizers.Tokenizer:
    """The library's tokenizer, without added tokens; raises :class:`ModelError` and what the library does."""
    texts = fields.read_texts("tokenizer.ggml.merges")
    if odd := next((text for text in texts if text.count(" ") != 1), None):
        raise fields.describe_refusal("an element of tokenizer.ggml.merges", odd, "two tokens and a space between")
    merges = [(first, second) for first, _, second in (text.partition(" ") for text in texts)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut.whole_words))
    backend.pre_tokenizer, backend.decoder = cut.cutter, decoders.ByteLevel()
    if cut.normalizer is not None:
        backend.normalizer = cut.normalizer
    return backend
