"""Text to token ids and back, for byte-level BPE vocabularies, built from the model file itself."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from paternoster_engine.chat.marks import MARK, Marker
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, parse_object

_CONTROL, _USER_DEFINED = 3, 4
"""GGUF token types that are matched in the text before BPE."""


def _byte_level(*before: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False)])


_QWEN2_WORDS = (
    # Contractions, words with what leads them in, single digits, punctuation, line ends, spaces: each by itself.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS = {
    "smollm": _byte_level(pre_tokenizers.Digits(individual_digits=True)),
    "gpt-2": _byte_level(),
    "qwen2": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}
"""GGUF's ``tokenizer.ggml.pre`` -> how text is cut before BPE."""
NORMALIZERS = {"qwen2": normalizers.NFC()}
"""The same -> what is done to the text before that, where anything is."""


COMPOSED = 3
"""NFC makes at most so many bytes into one: three letters of Hangul with three bytes each are one syllable of three."""


class Tokenizer:
    """A byte-level BPE tokenizer with its special tokens, and the chat template's source."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        eos_token_ids: Iterable[int],
        chat_template: str | None,
        special_names: Mapping[str, str],
    ) -> None:
        """``special_names``: such as ``bos_token`` -> ``<s>``, for the chat template."""
        self._backend = backend
        self.eos_token_ids = tuple(dict.fromkeys(eos_token_ids))
        self.chat_template, self.special_names = chat_template, special_names
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.largest_id = max((*backend.get_vocab(with_added_tokens=True).values(), *self.eos_token_ids), default=0)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """From the ``tokenizer.*`` keys of a GGUF file; raises :class:`UnsupportedModelError`."""
        kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if kind != "gpt2":
            raise UnsupportedModelError(f"tokenizer.ggml.model is {kind!r}: only 'gpt2' (byte-level BPE) is built in")
        if pre not in PRE_TOKENIZERS:
            raise UnsupportedModelError(f"tokenizer.ggml.pre is {pre!r}: built in are {', '.join(PRE_TOKENIZERS)}")
        fields = Fields(metadata, "the GGUF file")
        tokens = fields.texts("tokenizer.ggml.tokens")
        types = metadata.get("tokenizer.ggml.token_type", ())
        if len(types) != len(tokens):
            raise fields.refusal("the length of tokenizer.ggml.token_type", len(types), f"{len(tokens)}, one a token")
        merges = [tuple(merge.split(" ")) for merge in fields.texts("tokenizer.ggml.merges")]
        if odd := next((merge for merge in merges if len(merge) != 2), None):
            raise fields.refusal("an element of tokenizer.ggml.merges", " ".join(odd), "two tokens and a space between")
        with _refused_by_library("the GGUF file's vocabulary"):
            backend = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        backend.pre_tokenizer = PRE_TOKENIZERS[pre]
        if pre in NORMALIZERS:
            backend.normalizer = NORMALIZERS[pre]
        backend.decoder = decoders.ByteLevel()
        for token, token_type in zip(tokens, types, strict=True):
            if token_type in (_CONTROL, _USER_DEFINED):
                backend.add_tokens([AddedToken(token, special=token_type == _CONTROL, normalized=False)])
        keys = {name: f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom")}
        most = len(tokens) - 1
        ids = {name: fields.whole(key, most, least=0) for name, key in keys.items() if key in metadata}
        return cls(
            backend,
            [ids[name] for name in ("eos", "eot", "eom") if name in ids],
            fields.text("tokenizer.chat_template", default=None),
            {f"{name}_token": tokens[ids[name]] for name in ("bos", "eos") if name in ids},
        )

    @classmethod
    def from_json(
        cls,
        tokenizer_json: str,
        tokenizer_config: Mapping[str, Any],
        eos_token_ids: Any,
        chat_template: str | None,
    ) -> "Tokenizer":
        """From a ``tokenizer.json``; raises :class:`ModelError`."""
        document = Fields(parse_object(tokenizer_json, "tokenizer.json"), "tokenizer.json")
        decoder = document.mapping("decoder").get("type")
        if decoder != "ByteLevel":
            raise UnsupportedModelError(f"tokenizer.json has the decoder {decoder!r}: only 'ByteLevel' is built in")
        with _refused_by_library("tokenizer.json"):
            backend = tokenizers.Tokenizer.from_str(tokenizer_json)
        config = Fields(tokenizer_config, "tokenizer_config.json")
        names: dict[str, str] = {}
        for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
            token = tokenizer_config.get(key)
            if token is not None:
                inner = Fields(token, f"{key} of tokenizer_config.json") if isinstance(token, Mapping) else None
                names[key] = config.text(key) if inner is None else inner.text("content")
        if eos_token_ids is None:
            eos = backend.token_to_id(names["eos_token"]) if "eos_token" in names else None
            eos_token_ids = [] if eos is None else [eos]
        elif not isinstance(eos_token_ids, list):
            eos_token_ids = [eos_token_ids]
        for i in eos_token_ids:
            if type(i) is not int or i < 0:
                raise config.refusal("eos_token_id", i, "a token's id, or a list of them")
        return cls(backend, eos_token_ids, chat_template or config.text("chat_template", default=None), names)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids of ``text``; special tokens written in it are recognised."""
        return self.encoding(text, add_special_tokens).ids

    def encoding(self, text: str, add_special_tokens: bool = False) -> tokenizers.Encoding:
        """``len`` and ``ids`` of the tokens of ``text``; marks in it are taken out.

        Other threads run meanwhile; making a list of many ids holds them up, and asking for the length does not.
        """
        backend = self._unmarking if MARK in text else self._backend
        # The only one of its methods that releases the interpreter's lock and makes no strings and offsets of tokens.
        encodings: list[tokenizers.Encoding] = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return encodings[0]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        texts: list[str] = self._backend.decode_batch([list(ids)], skip_special_tokens=skip_special_tokens)
        return texts[0]

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of a token, None outside the vocabulary."""
        token: str | None = self._backend.id_to_token(token_id)
        return token

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; empty outside the vocabulary."""
        token = self.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._added_token_ids:
            return token.encode()
        # A character that stands for no byte is in no vocabulary that was trained; it stands for itself.
        return b"".join(bytes((_BYTE_OF[c],)) if c in _BYTE_OF else c.encode(errors="replace") for c in token)

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_token_ids

    def most_bytes(self, num_tokens: int) -> int:
        """The longest text in UTF-8 that ``num_tokens`` tokens can be."""
        return num_tokens * self._longest_token * (1 if self._backend.normalizer is None else COMPOSED)

    @cached_property
    def marker(self) -> Marker:
        """Marks this model's control tokens in messages."""
        added = self._backend.get_added_tokens_decoder().values()
        special = [token.content for token in added if token.special]
        others = [token.content for token in added if not token.special]
        return Marker(special, others, self.chat_template or "")

    @cached_property
    def _unmarking(self) -> tokenizers.Tokenizer:
        """The same tokenizer, but for marks, which it takes out between added tokens and the rest of its work."""
        data = json.loads(self._backend.to_str())
        normalizers = [{"type": "Replace", "pattern": {"String": MARK}, "content": ""}, data["normalizer"]]
        data["normalizer"] = {"type": "Sequence", "normalizers": [item for item in normalizers if item is not None]}
        for token in data["added_tokens"]:
            # Those that are looked for in the normalized text would be found again once the marks are gone.
            token["normalized"] = False
        return tokenizers.Tokenizer.from_str(json.dumps(data))

    @cached_property
    def _longest_token(self) -> int:
        """Bytes. A byte-level token has one character for each of its bytes."""
        added = self._backend.get_added_tokens_decoder().values()
        plain = self._backend.get_vocab(with_added_tokens=False)
        return max(max(map(len, plain), default=1), max((len(token.content.encode()) for token in added), default=1))

    @cached_property
    def _added_token_ids(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _special_token_ids(self) -> frozenset[int]:
        return frozenset(i for i, token in self._backend.get_added_tokens_decoder().items() if token.special)


@contextmanager
def _refused_by_library(what: str) -> Iterator[None]:
    """The library raises plain exceptions for files that it cannot take; its panics are no ``Exception`` at all."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        raise UnsupportedModelError(f"{what} is none that can be read: {reason[:200]}") from error


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
