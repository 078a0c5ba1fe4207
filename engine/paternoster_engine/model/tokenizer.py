"""Text to token ids and back, by what the model's own files say."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Literal, NamedTuple

import tokenizers

from paternoster_engine.chat.marks import CONTROL_MARK, Marker
from paternoster_engine.chat.tool_prompt import MARKS
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.vocabulary.file_vocabulary import FileVocabulary
from paternoster_engine.model.vocabulary.from_gguf import read_gguf_vocabulary
from paternoster_engine.model.vocabulary.from_json import TokenizerFiles, read_json_vocabulary
from paternoster_engine.model.vocabulary.spelling import ByteLevel, Spelling

DEFAULT, TOOL_USE = "default", "tool_use"
"""Names of chat templates where a model has several; the second is of conversations with tools, as in transformers."""
PIECE = 2**17
"""Characters of a long text that are tokenized at once to find out how much of it is needed."""
COMPOSED = 3
"""Most bytes that NFC makes into one: three letters of Hangul, three bytes each, are one syllable of three."""


class Truncation(NamedTuple):
    """How a text of too many tokens is cut."""

    most: int
    """Tokens that are left, those that the tokenizer puts around a text among them."""
    side: Literal["left", "right"] = "right"
    """Where tokens are cut off: left keeps the last ones."""


class Tokenizer:
    """A vocabulary with its special tokens, and the chat template's source."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        eos_token_ids: Iterable[int],
        chat_template: str | None,
        special_names: Mapping[str, str],
        spelling: Spelling | None = None,
        tool_use_template: str | None = None,
    ) -> None:
        """``special_names``: such as ``bos_token`` -> ``<s>``, for the template. ``spelling``: byte-level if None.

        ``tool_use_template``: another chat template for conversations with tools.
        """
        self._backend = backend
        self._spelling = spelling or ByteLevel()
        self.eos_token_ids = tuple(dict.fromkeys(eos_token_ids))
        self.chat_template, self.tool_use_template = chat_template, tool_use_template
        self.special_names = special_names
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.notes: Sequence[str] = ()
        """One line for each part of the files that has no effect."""
        self.largest_id = max((*backend.get_vocab(with_added_tokens=True).values(), *self.eos_token_ids), default=0)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """From the ``tokenizer.*`` keys of a GGUF file; raises :class:`UnsupportedModelError`."""
        vocabulary = read_gguf_vocabulary(metadata)
        return cls._from_vocabulary(vocabulary, vocabulary.chat_template, vocabulary.tool_use_template)

    @classmethod
    def from_json(
        cls, files: TokenizerFiles, chat_template: str | None = None, tool_use_template: str | None = None
    ) -> "Tokenizer":
        """From the files of a folder; templates: of files of their own. Raises :class:`ModelError`."""
        vocabulary = read_json_vocabulary(files)
        config = Fields(files.tokenizer_config, "tokenizer_config.json")
        if tool_use_template is None and chat_template is None:
            tool_use_template = _named_template(config, TOOL_USE)
        return cls._from_vocabulary(vocabulary, chat_template or _named_template(config), tool_use_template)

    @classmethod
    def _from_vocabulary(
        cls, vocabulary: FileVocabulary, chat_template: str | None, tool_use_template: str | None
    ) -> "Tokenizer":
        ends, names = vocabulary.eos_token_ids, vocabulary.special_names
        made = cls(vocabulary.backend, ends, chat_template, names, vocabulary.spelling, tool_use_template)
        made.notes = vocabulary.notes
        return made

    def with_template(self, chat_template: str) -> "Tokenizer":
        """Make a tokenizer with another chat template, and with all that is known of the vocabulary."""
        # Looking at each token once more takes 0.1 s.
        _ = self._longest_token
        made = copy(self)
        made.chat_template, made.tool_use_template = chat_template, None
        vars(made).pop("marker", None)
        return made

    def to_json(self) -> str:
        """Write the ``tokenizer.json`` of Hugging Face's libraries."""
        text: str = self._backend.to_str()
        return text

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids of ``text``; special tokens written in it are recognised."""
        return self.encode_text(text, add_special_tokens).ids

    def encode_text(
        self, text: str, add_special_tokens: bool = False, truncation: Truncation | None = None
    ) -> tokenizers.Encoding:
        """``len`` and ``ids`` of the tokens of ``text``; marks in it are taken out.

        What the tokenizer puts around the text stays when it is cut.

        Other threads run meanwhile; making a list of many ids holds them up, and asking for the length does not.
        """
        backend = self._unmarking if CONTROL_MARK in text else self._backend
        # The only one of its methods that releases the interpreter's lock and makes no strings and offsets of tokens.
        (encoding,) = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens and truncation is None)
        if truncation is not None:
            around = self.num_special_tokens if add_special_tokens else 0
            _shorten_encoding(encoding, max(0, truncation.most - around), truncation.side)
            encoding = backend.post_process(encoding, add_special_tokens=add_special_tokens)
        whole: tokenizers.Encoding = encoding
        return whole

    @property
    def num_special_tokens(self) -> int:
        """How many the tokenizer puts around a text."""
        count: int = self._backend.num_special_tokens_to_add(is_pair=False)
        return count

    def text_encoding(
        self,
        text: str,
        second: str | None = None,
        most: int | None = None,
        *,
        each: Sequence[int | None] = (),
        keep_first: bool = False,
        cut_after: str | None = None,
    ) -> tokenizers.Encoding:
        """With what the model puts around a text, or around two that it compares; of ``most`` tokens if not None.

        What is too long is cut: the longer of two texts first, or with ``keep_first`` the second alone, of which one
        token stays. ``each``: most tokens of each text by itself. ``cut_after``: one text, which begins with this, is
        cut behind it, so that its end stays.
        """
        texts = [text] if second is None else [text, second]
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        for encoding, limit in zip(encodings, each, strict=False):
            if limit is not None:
                _shorten_encoding(encoding, limit)
        if most is not None:
            room = max(0, most - self._backend.num_special_tokens_to_add(second is not None))
            if keep_first and second is not None:
                _shorten_encoding(encodings[1], max(1, room - len(encodings[0])))
            elif cut_after is not None and len(encodings[0]) > room:
                encodings = [self._keep_end(text, cut_after, room)]
            else:
                _cut_encodings(encodings, room)
        pair = None if second is None else encodings[1]
        whole: tokenizers.Encoding = self._backend.post_process(encodings[0], pair)
        return whole

    def _keep_end(self, text: str, beginning: str, room: int) -> tokenizers.Encoding:
        """``room`` tokens of ``text``: those of its ``beginning``, and the last ones."""
        of_beginning, head, tail = self._backend.encode_batch_fast([beginning, text, text], add_special_tokens=False)
        first = min(len(of_beginning), max(0, room - 1))
        _shorten_encoding(head, first)
        _shorten_encoding(tail, room - first, "left")
        return tokenizers.Encoding.merge([head, tail], growing_offsets=False) if first else tail

    def find_prefix(self, text: str, num_tokens: int) -> str:
        """A beginning of ``text`` with more than ``num_tokens`` tokens, or the whole text where it has fewer.

        It is found piece by piece, so that the tokens of megabytes never exist at once: 150 bytes each, which the
        library frees while it holds the interpreter's lock.
        """
        if len(text) <= PIECE:
            return text
        end = found = 0
        while end < len(text) and found <= num_tokens:
            start, end = end, end + PIECE
            (encoding,) = self._backend.encode_batch_fast([text[start:end]], add_special_tokens=False)
            # A token that spans two pieces is counted in both.
            found += max(0, len(encoding) - 1)
        return text[:end]

    def find_suffix(self, text: str, num_tokens: int) -> str:
        """Find the suffix with the last tokens, like :meth:`find_prefix` from the end."""
        start, found = len(text), 0
        while start > 0 and found <= num_tokens:
            start, end = max(0, start - PIECE), start
            (encoding,) = self._backend.encode_batch_fast([text[start:end]], add_special_tokens=False)
            found += max(0, len(encoding) - 1)
        return text[start:]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        shown = [i for i in ids if not self.is_special(i)] if skip_special_tokens else ids
        text = b"".join(map(self._bytes.__getitem__, shown)).decode(errors="replace")
        return text.removeprefix(" ") if self.strips_space else text

    @property
    def strips_space(self) -> bool:
        """Whether the first space of a whole text is none of the text, but was put there by encoding it."""
        return self._spelling.strips_space

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of a token, None outside the vocabulary."""
        token: str | None = self._backend.id_to_token(token_id)
        return token

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; empty outside the vocabulary."""
        return self._bytes[token_id]

    def byte_lengths(self, ids: Iterable[int]) -> list[int]:
        """Bytes that each token stands for."""
        return list(map(len, map(self._bytes.__getitem__, ids)))

    def special_token_id(self, text: str) -> int | None:
        """Id of the special token that is spelled so, None where there is none."""
        token_id: int | None = self._backend.token_to_id(text)
        return token_id if token_id is not None and self.is_special(token_id) else None

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
        templates = (self.chat_template or "") + (self.tool_use_template or "")
        return Marker(special, others, templates + MARKS)

    @cached_property
    def _unmarking(self) -> tokenizers.Tokenizer:
        """Make a tokenizer that takes marks out between added tokens and the rest of its work."""
        data = json.loads(self._backend.to_str())
        normalizers = [{"type": "Replace", "pattern": {"String": CONTROL_MARK}, "content": ""}, data["normalizer"]]
        data["normalizer"] = {"type": "Sequence", "normalizers": [item for item in normalizers if item is not None]}
        # A control token that merges would make of its characters is none either.
        special = {token["content"] for token in data["added_tokens"] if token["special"]}
        model = data["model"]
        model["merges"] = [merge for merge in model.get("merges", ()) if "".join(merge) not in special]
        for token in data["added_tokens"]:
            # Those that are looked for in the normalized text would be found again once the marks are gone.
            token["normalized"] = False
        return tokenizers.Tokenizer.from_str(json.dumps(data))

    @cached_property
    def _longest_token(self) -> int:
        """Bytes."""
        added = self._backend.get_added_tokens_decoder().values()
        plain = self._backend.get_vocab(with_added_tokens=False)
        return max(
            max(map(self._spelling.most_bytes, plain), default=1),
            max((len(self._spelling.decode_added_token(token.content)) for token in added), default=1),
        )

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        return _Table(self._spell_token)

    def _spell_token(self, token_id: int) -> bytes:
        token = self.id_to_token(token_id)
        if token is None:
            return b""
        return (
            self._spelling.decode_added_token(token)
            if token_id in self._added_token_ids
            else self._spelling.decode_token(token)
        )

    @cached_property
    def _added_token_ids(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _special_token_ids(self) -> frozenset[int]:
        return frozenset(i for i, token in self._backend.get_added_tokens_decoder().items() if token.special)


def _named_template(config: Fields, name: str = DEFAULT) -> str | None:
    """Read a template from tokenizer_config.json, by name where it has several; raises :class:`UnsupportedModelError`.

    Only that named ``default`` must be there.
    """
    named = config.read_mappings("chat_template")
    if named is None:
        return config.read_text("chat_template", default=None) if name == DEFAULT else None
    found = [item.get("template") for item in named if item.get("name") == name]
    if not found and name != DEFAULT:
        return None
    if len(found) != 1 or not isinstance(found[0], str):
        raise config.describe_refusal(
            "chat_template", [item.get("name") for item in named], f"a list with one named {name!r}"
        )
    return found[0]


def _cut_encodings(encodings: Sequence[tokenizers.Encoding], room: int) -> None:
    """To ``room`` tokens in all, one by one from the longest, the first among equals."""
    lengths = [len(encoding) for encoding in encodings]
    if sum(lengths) <= room:
        return
    if len(lengths) == 1:
        _shorten_encoding(encodings[0], room)
        return
    short, long = sorted((0, 1), key=lambda i: lengths[i])
    longer = max(room - lengths[short], room - room // 2)
    _shorten_encoding(encodings[long], longer)
    _shorten_encoding(encodings[short], min(lengths[short], room - longer))


def _shorten_encoding(encoding: tokenizers.Encoding, most: int, side: Literal["left", "right"] = "right") -> None:
    """To ``most`` tokens at most, by halves: the library keeps a part of ``most`` tokens for each ``most`` cut off."""
    while len(encoding) > most:
        encoding.truncate(max(most, len(encoding) // 2), direction=side)


class _Table(dict[int, bytes]):
    """Filled as tokens are looked up; never more than the vocabulary, as only its ids are."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> bytes:
        value = self[key] = self._make(key)
        return value
