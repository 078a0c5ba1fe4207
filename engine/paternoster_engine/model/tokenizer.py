"""Text to token ids and back, for byte-level BPE vocabularies, built from the model file itself."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from paternoster_engine.model.chat_template import ChatTemplate, ChatTemplateError
from paternoster_engine.model.errors import UnsupportedModelError

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


class Tokenizer:
    """A byte-level BPE tokenizer with its special tokens and chat template."""

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
        self._chat_template = None if chat_template is None else ChatTemplate(chat_template, special_names)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """From the ``tokenizer.*`` keys of a GGUF file; raises :class:`UnsupportedModelError`."""
        kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if kind != "gpt2":
            raise UnsupportedModelError(f"tokenizer.ggml.model is {kind!r}: only 'gpt2' (byte-level BPE) is built in")
        if pre not in PRE_TOKENIZERS:
            raise UnsupportedModelError(f"tokenizer.ggml.pre is {pre!r}: built in are {', '.join(PRE_TOKENIZERS)}")
        tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
        backend = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        backend.pre_tokenizer = PRE_TOKENIZERS[pre]
        if pre in NORMALIZERS:
            backend.normalizer = NORMALIZERS[pre]
        backend.decoder = decoders.ByteLevel()
        for token, token_type in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True):
            if token_type in (_CONTROL, _USER_DEFINED):
                backend.add_tokens([AddedToken(token, special=token_type == _CONTROL, normalized=False)])
        keys = {name: f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom")}
        ids: dict[str, int] = {name: metadata[key] for name, key in keys.items() if key in metadata}
        return cls(
            backend,
            [ids[name] for name in ("eos", "eot", "eom") if name in ids],
            metadata.get("tokenizer.chat_template"),
            {f"{name}_token": tokens[ids[name]] for name in ("bos", "eos") if name in ids},
        )

    @classmethod
    def from_json(
        cls,
        tokenizer_json: str,
        tokenizer_config: Mapping[str, Any],
        eos_token_ids: int | Sequence[int] | None,
        chat_template: str | None,
    ) -> "Tokenizer":
        """From a ``tokenizer.json``; raises :class:`UnsupportedModelError`."""
        decoder = (json.loads(tokenizer_json).get("decoder") or {}).get("type")
        if decoder != "ByteLevel":
            raise UnsupportedModelError(f"tokenizer.json has the decoder {decoder!r}: only 'ByteLevel' is built in")
        backend = tokenizers.Tokenizer.from_str(tokenizer_json)
        names: dict[str, str] = {}
        for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
            token = tokenizer_config.get(key)
            if token is not None:
                names[key] = token["content"] if isinstance(token, Mapping) else token
        if eos_token_ids is None:
            eos = backend.token_to_id(names["eos_token"]) if "eos_token" in names else None
            eos_token_ids = [] if eos is None else [eos]
        elif isinstance(eos_token_ids, int):
            eos_token_ids = [eos_token_ids]
        return cls(backend, eos_token_ids, chat_template or tokenizer_config.get("chat_template"), names)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids of ``text``; special tokens written in it are recognised."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

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
        return bytes(_BYTE_OF[character] for character in token)

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_token_ids

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Prompt text of a conversation; raises :class:`ChatTemplateError`."""
        if self._chat_template is None:
            raise ChatTemplateError("the model file has no chat template")
        return self._chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    @cached_property
    def _added_token_ids(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _special_token_ids(self) -> frozenset[int]:
        return frozenset(i for i, token in self._backend.get_added_tokens_decoder().items() if token.special)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
