"""What a model's files say about its tokenizer, in one form for GGUF files and for tokenizer.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from paternoster_engine.model.vocabulary.spelling import Spelling


@dataclass(frozen=True, slots=True)
class FileVocabulary:
    """A tokenizer of the library, and what the files say besides."""

    backend: tokenizers.Tokenizer
    spelling: Spelling
    eos_token_ids: Sequence[int]
    special_names: Mapping[str, str]
    """Such as ``bos_token`` -> ``<s>``."""
    chat_template: str | None = None
    tool_use_template: str | None = None
    """Another one for conversations with tools."""
    notes: Sequence[str] = ()
    """One line for each part of the files that has no effect."""
