"""What a tokenizer.json may ask of the library, checked before the library reads it. Pure.

A tokenizer is run on texts of clients in the engine's own process: each text must take a time and a memory in
proportion to its bytes. So steps are counted, what each may add to a text is multiplied, and patterns that backtrack
and words without a limit are refused. Bounds are well above what published tokenizers have.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import shorten_value
from paternoster_engine.model.vocabulary.charsmap import CharsmapError, charsmap_growth
from paternoster_engine.model.vocabulary.patterns import BOUNDED, PatternError, check_pattern

FILE = "tokenizer.json"
MOST_STEPS = 32
"""Normalizers, pre-tokenizers or post-processors in a row."""
MOST_GROWTH = 256
"""Bytes that the steps together may make of one."""
MOST_TOKENS = 2**22
MOST_ADDED = 2**18
LONGEST_TOKEN = 2_048
"""Characters."""
MOST_ADDED_CHARACTERS = 2**23
LONGEST_AFFIX = 64
"""Characters of what a model puts before or behind parts of words."""
LONGEST_WORD = 200
"""Characters of a word that WordPiece takes apart, in a time that is their cube: BERT's has 100."""
MOST_AROUND = 256
"""Tokens that a template puts around a text."""
_LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
_FORMS = {"NFC": 3.0, "NFD": 3.0, "NFKC": 11.0, "NFKD": 11.0}
"""How much longer each may make a text in UTF-8 (Unicode's FAQ on normalization)."""
_GROWTH = {"Lowercase": 1.5, "BertNormalizer": 8.0}
"""Lower case of U+0130; NFD of Hangul, lower case, and spaces around ideographs."""


def bound_tokenizer(document: dict[str, Any]) -> bool:
    """Check a parsed tokenizer.json; raises :class:`UnsupportedModelError` that names the field.

    Patterns of :data:`BOUNDED` are replaced in it; returns whether one was. What is of a wrong type is left to the
    library, which refuses it.
    """
    replaced = _bound_patterns(document)
    growth = _bound_growth(document)
    if growth > MOST_GROWTH:
        raise UnsupportedModelError(
            f"{FILE}: normalizer and pre_tokenizer may make {growth:.0f} bytes of one: must be at most {MOST_GROWTH}"
        )
    for path, step in _list_steps(document, "post_processor"):
        _bound_template(path, step)
    _bound_model(document.get("model"))
    check_added(document.get("added_tokens"), f"{FILE}: added_tokens")
    return replaced


def check_vocabulary(tokens: Sequence[Any], field: str) -> None:
    """Check the texts of a vocabulary; raises :class:`UnsupportedModelError` naming ``field``."""
    if len(tokens) > MOST_TOKENS:
        raise UnsupportedModelError(f"{field} has {len(tokens)} elements: must be at most {MOST_TOKENS}")
    longest = max((token for token in tokens if isinstance(token, str)), key=len, default="")
    if len(longest) > LONGEST_TOKEN:
        raise UnsupportedModelError(
            f"{field} has {shorten_value(longest)}, of {len(longest)} characters: must be of at most {LONGEST_TOKEN}"
        )


def check_added(tokens: Any, field: str) -> None:
    """Check tokens that are looked for in texts, as texts or as objects with ``content``.

    Raises :class:`UnsupportedModelError` naming ``field``.
    """
    if not isinstance(tokens, list):
        return
    if len(tokens) > MOST_ADDED:
        raise UnsupportedModelError(f"{field} has {len(tokens)} elements: must be at most {MOST_ADDED}")
    texts = [token.get("content") if isinstance(token, Mapping) else token for token in tokens]
    check_vocabulary(texts, field)
    total = sum(len(text) for text in texts if isinstance(text, str))
    if total > MOST_ADDED_CHARACTERS:
        raise UnsupportedModelError(f"{field} has {total} characters in all: must be at most {MOST_ADDED_CHARACTERS}")


def _list_steps(document: Mapping[str, Any], section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The steps of a section in order, sequences taken apart, each with the path of its field."""
    waiting: list[tuple[str, Any]] = [(section, document.get(section))]
    count = 0
    while waiting:
        path, step = waiting.pop()
        count += 1
        if count > MOST_STEPS:
            raise UnsupportedModelError(f"{FILE}: {section} has more than {MOST_STEPS} steps")
        if not isinstance(step, dict):
            continue
        inner = step.get(_LISTS[section])
        if step.get("type") == "Sequence" and isinstance(inner, list):
            if len(inner) > MOST_STEPS:
                raise UnsupportedModelError(f"{FILE}: {path} has {len(inner)} steps: must be at most {MOST_STEPS}")
            waiting += reversed([(f"{path}.{_LISTS[section]}[{i}]", each) for i, each in enumerate(inner)])
        else:
            yield path, step


def _bound_patterns(document: Mapping[str, Any]) -> bool:
    """Check every regular expression, and replace those that are known to be slow."""
    replaced = False
    for path, step in chain(_list_steps(document, "normalizer"), _list_steps(document, "pre_tokenizer")):
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        if not isinstance(regex, str):
            continue
        if regex in BOUNDED:
            other = BOUNDED[regex]
            if other is not None:
                pattern["Regex"], replaced = other, True  # type: ignore[index]
            continue
        _least_width(path, regex)
    return replaced


def _least_width(path: str, regex: str) -> int:
    if regex in BOUNDED or regex in BOUNDED.values():
        return 0
    try:
        return check_pattern(regex)
    except PatternError as error:
        raise UnsupportedModelError(
            f"{FILE}: {path}.pattern.Regex is {shorten_value(regex)}: "
            "must be a pattern that takes a time in proportion to any "
            f"text: {error}"
        ) from error


def _bound_growth(document: Mapping[str, Any]) -> float:
    """The most bytes that normalizers and pre-tokenizers together make of one."""
    growth, folded = 1.0, False
    for path, step in _list_steps(document, "normalizer"):
        kind = step.get("type")
        match kind:
            case "NFC" | "NFD" | "NFKC" | "NFKD":
                # What is in a compatibility form already grows no more.
                growth *= 1.0 if folded else _FORMS[kind]
                folded = folded or kind in ("NFKC", "NFKD")
            case "Replace":
                content = step.get("content")
                growth *= _bound_replace(path, step)
                folded = folded and isinstance(content, str) and content.isascii()
            case "Prepend":
                prefix = step.get("prepend")
                growth *= 1 + _utf8_length(prefix)  # of each part between added tokens, which may be one byte
                folded = folded and isinstance(prefix, str) and prefix.isascii()
            case "Precompiled":
                growth *= _compile_pattern(path, step, folded=folded)
                folded = False
            case "ByteLevel":
                growth *= 2
            case _:
                growth *= _GROWTH.get(str(kind), 1.0)
    for _, step in _list_steps(document, "pre_tokenizer"):
        if step.get("type") == "Metaspace":
            growth *= 3 if step.get("prepend_scheme") == "never" else 4
        elif step.get("type") == "ByteLevel":
            growth *= 3 if step.get("add_prefix_space") else 2
    return growth


def _bound_replace(path: str, step: Mapping[str, Any]) -> float:
    """The most bytes that a ``Replace`` makes of one; an empty match is beside every character."""
    pattern, content = step.get("pattern"), _utf8_length(step.get("content"))
    if not isinstance(pattern, Mapping):
        return 1.0
    regex = pattern.get("Regex")
    least = _least_width(path, regex) if isinstance(regex, str) else _utf8_length(pattern.get("String"))
    return max(1.0, content / least) if least else 1.0 + content


def _compile_pattern(path: str, step: Mapping[str, Any], *, folded: bool) -> float:
    text = step.get("precompiled_charsmap")
    if not isinstance(text, str):
        return 1.0
    try:
        return charsmap_growth(base64.b64decode(text), folded=folded)
    except (CharsmapError, binascii.Error) as error:
        raise UnsupportedModelError(f"{FILE}: {path}.precompiled_charsmap is no compiled map: {error}") from error


def _utf8_length(text: Any) -> int:
    return len(text.encode(errors="replace")) if isinstance(text, str) else 0


def _bound_template(path: str, step: Mapping[str, Any]) -> None:
    """A text is in a template once, and few tokens are around it."""
    special = step.get("special_tokens")
    special = special if isinstance(special, Mapping) else {}
    for name in ("single", "pair"):
        parts = step.get(name)
        parts = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
        texts = [part["Sequence"].get("id") for part in parts if isinstance(part.get("Sequence"), Mapping)]
        if len(texts) != len(set(map(str, texts))):
            raise UnsupportedModelError(f"{FILE}: {path}.{name} has {shorten_value(texts)}: must have each text once")
        ids = 0
        for part in parts:
            token = part.get("SpecialToken")
            named = special.get(token.get("id")) if isinstance(token, Mapping) else None
            listed = named.get("ids") if isinstance(named, Mapping) else None
            ids += len(listed) if isinstance(listed, list) else 1
        if ids > MOST_AROUND:
            raise UnsupportedModelError(f"{FILE}: {path}.{name} has {ids} tokens: must be at most {MOST_AROUND}")


def _bound_model(model: Any) -> None:
    if not isinstance(model, Mapping):
        return
    plain = {name: model.get(name) for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")}
    for name, text in plain.items():
        if isinstance(text, str) and len(text) > LONGEST_AFFIX:
            raise UnsupportedModelError(
                f"{FILE}: model.{name} is {shorten_value(text)}, of {len(text)} characters: "
                f"must be of at most {LONGEST_AFFIX}"
            )
    if model.get("type") == "WordPiece" or "max_input_chars_per_word" in model:
        most = model.get("max_input_chars_per_word")
        if most is not None and (type(most) is not int or not 0 <= most <= LONGEST_WORD):
            allowed = f"a whole number from 0 to {LONGEST_WORD}"
            raise UnsupportedModelError(
                f"{FILE}: model.max_input_chars_per_word is {shorten_value(most)}: must be {allowed}"
            )
    if dropout := model.get("dropout"):
        raise UnsupportedModelError(
            f"{FILE}: model.dropout is {shorten_value(dropout)}: must be null, as it is for training"
        )
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if isinstance(vocabulary, (Mapping, list)):
        texts = [item[0] if isinstance(item, list) and item else item for item in vocabulary]
        check_vocabulary(texts, f"{FILE}: model.vocab")
    if isinstance(merges, list) and len(merges) > MOST_TOKENS:
        raise UnsupportedModelError(f"{FILE}: model.merges has {len(merges)} elements: must be at most {MOST_TOKENS}")
