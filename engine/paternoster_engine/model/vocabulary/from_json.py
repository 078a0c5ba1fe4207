"""The library's tokenizer from the tokenizer files of a folder, which may contradict each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, parse_object, shorten_value
from paternoster_engine.model.vocabulary.added_tokens import (
    add_tokens_beside,
    drop_tokens_without_row,
    tokenizer_text,
)
from paternoster_engine.model.vocabulary.bounds import bound_tokenizer, check_vocabulary
from paternoster_engine.model.vocabulary.file_vocabulary import FileVocabulary
from paternoster_engine.model.vocabulary.library import refused_by_library
from paternoster_engine.model.vocabulary.spelling import spelling_of
from paternoster_engine.model.weights.model_folder import some_of

NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
"""Special tokens that chat templates name."""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The tokenizer files of a folder; a missing file is an empty mapping."""

    tokenizer_json: str
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    special_tokens_map: Mapping[str, Any] = field(default_factory=dict)
    added_tokens: Mapping[str, Any] = field(default_factory=dict)
    eos_token_ids: Any = None
    """``eos_token_id`` of generation_config.json, or of config.json where that has none."""
    rows: int | None = None
    """Rows of the model's embedding; None if unknown."""


def read_json_vocabulary(files: TokenizerFiles) -> FileVocabulary:
    """Read the vocabulary from a folder's files. Raises :class:`ModelError`, which names file and field."""
    document = parse_object(files.tokenizer_json, "tokenizer.json")
    replaced = bound_tokenizer(document)
    spelling = spelling_of(Fields(document, "tokenizer.json").read_mapping("decoder"))
    beyond = [] if files.rows is None else drop_tokens_without_row(document, files.rows)
    with refused_by_library("tokenizer.json"):
        backend = tokenizers.Tokenizer.from_str(
            tokenizer_text(document) if beyond or replaced else files.tokenizer_json
        )
    # Both are settings of the training, and would change texts unnoticed.
    backend.no_truncation()
    backend.no_padding()
    beyond += add_tokens_beside(backend, files.tokenizer_config, files.added_tokens, files.rows)
    notes = []
    if beyond:
        tokens = some_of(list(dict.fromkeys(beyond)))
        notes.append(f"the model has {files.rows} embeddings, and none for {tokens}: their text is plain text")
    names = _special_names(files)
    eos_token_ids, eos_notes = _eos_token_ids(files, backend, names)
    return FileVocabulary(backend, spelling, eos_token_ids, names, notes=[*notes, *eos_notes])


def _special_names(files: TokenizerFiles) -> dict[str, str]:
    """Read the special tokens of tokenizer_config.json, and in older folders those of special_tokens_map.json."""
    sources = [(files.tokenizer_config, "tokenizer_config.json")]
    if "added_tokens_decoder" not in files.tokenizer_config:
        sources.append((files.special_tokens_map, "special_tokens_map.json"))
    names: dict[str, str] = {}
    for values, file in sources:
        for key in NAMES:
            token = values.get(key)
            if token is not None:
                inner = Fields(token, f"{key} of {file}") if isinstance(token, Mapping) else None
                names[key] = Fields(values, file).read_text(key) if inner is None else inner.read_text("content")
                check_vocabulary([names[key]], f"{file}: {key}")
    return names


def _eos_token_ids(
    files: TokenizerFiles, backend: tokenizers.Tokenizer, names: Mapping[str, str]
) -> tuple[list[int], list[str]]:
    """Return the tokens that end an answer, of the model's files and of the tokenizer as in vLLM, and notes."""
    listed = files.eos_token_ids if isinstance(files.eos_token_ids, list) else [files.eos_token_ids]
    ids = [i for i in listed if i is not None]
    for i in ids:
        if type(i) is not int or i < 0:
            refused = Fields({}, "generation_config.json or config.json")
            raise refused.describe_refusal("eos_token_id", i, "a token's id, or a list of them")
    own = backend.token_to_id(names["eos_token"]) if "eos_token" in names else None
    every = list(dict.fromkeys([*ids, *([] if own is None else [own])]))
    with_rows = every if files.rows is None else [i for i in every if i < files.rows]
    if every and not with_rows:
        raise UnsupportedModelError(
            f"eos_token_id is {shorten_value(every)}: must have one below {files.rows}, the vocabulary"
        )
    notes = []
    if unknown := [i for i in every if i not in with_rows]:
        notes.append(
            f"eos_token_id has {shorten_value(unknown)}, of a vocabulary of {files.rows}: no answer ends with these"
        )
    if "eos_token" in names and own is None:
        notes.append(f"eos_token is {shorten_value(names['eos_token'])}, which tokenizer.json does not have")
    return with_rows, notes
