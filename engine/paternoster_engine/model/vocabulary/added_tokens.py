"""Added tokens of a folder's tokenizer files: those outside tokenizer.json, and those without an embedding."""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.vocabulary.bounds import check_added


def drop_tokens_without_row(document: dict[str, Any], rows: int) -> list[str]:
    """Remove the added tokens whose id is ``rows`` or more from a parsed tokenizer.json; return their descriptions.

    The model has no embedding for them (``<image_soft_token>`` in text models of Gemma 3), so their text is plain text,
    as in llama.cpp's converter. Regular tokens beyond ``rows`` stay, and are an error: it is another model's tokenizer.
    """
    added = document.get("added_tokens")
    if not isinstance(added, list):
        return []
    beyond = [token for token in added if isinstance(token, dict) and _read_id(token) >= rows]
    if not beyond:
        return []
    document["added_tokens"] = [token for token in added if token not in beyond]
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        for token in beyond:
            if vocabulary.get(token.get("content")) == token["id"]:
                del vocabulary[token["content"]]
    return [_describe_token(str(token.get("content")), token["id"]) for token in beyond]


def add_tokens_beside(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], legacy: Mapping[str, Any], rows: int | None
) -> list[str]:
    """Add the tokens of ``added_tokens_decoder``, or without it of added_tokens.json, that tokenizer.json lacks.

    This follows transformers. Returns descriptions of the tokens without an embedding, which are not added. ``config``:
    a tokenizer_config.json; ``legacy``: an added_tokens.json. Raises :class:`UnsupportedModelError` for a token that
    would get another id than its file says.
    """
    if "added_tokens_decoder" in config:
        field = "tokenizer_config.json: added_tokens_decoder"
        listed = Fields(config, "tokenizer_config.json").read_mapping("added_tokens_decoder")
        tokens = [(key, *_parse_token(key, token, field)) for key, token in listed.items()]
    else:
        field = "added_tokens.json"
        tokens = [(content, _read_whole(content, i, field), AddedToken(content, normalized=False))
                  for content, i in legacy.items()]  # fmt: skip
    check_added([token.content for _, _, token in tokens], field)
    existing = {token.content for token in backend.get_added_tokens_decoder().values()}
    beyond: list[str] = []
    new: dict[str, AddedToken] = {}
    size = backend.get_vocab_size(with_added_tokens=True)
    for key, token_id, token in sorted(tokens, key=lambda item: item[1]):
        if token.content in existing or token.content in new:
            continue
        if rows is not None and token_id >= rows:
            beyond.append(_describe_token(token.content, token_id))
            continue
        present = backend.token_to_id(token.content)
        becomes = size if present is None else present
        if becomes != token_id:
            raise UnsupportedModelError(
                f"{field} has {shorten_value(key)}, the token {shorten_value(token.content)} with the id {token_id}: "
                f"must be in "
                f"tokenizer.json, or have the id {becomes}"
            )
        new[token.content] = token
        size += present is None
    backend.add_tokens(list(new.values()))  # at once: the library looks for all of them in one automaton
    return beyond


def _describe_token(content: str, token_id: int) -> str:
    return f"{shorten_value(content)} ({token_id})"


def _read_id(token: Mapping[str, Any]) -> int:
    value = token.get("id")
    return value if type(value) is int else -1


def _read_whole(key: Any, value: Any, field: str) -> int:
    if type(value) is not int or value < 0:
        raise UnsupportedModelError(f"{field}: {shorten_value(key)} is {shorten_value(value)}: must be a token's id")
    return value


def _parse_token(key: str, token: Any, field: str) -> tuple[int, AddedToken]:
    if not key.isascii() or not key.isdigit() or len(key) > 10:
        raise UnsupportedModelError(f"{field} has the name {shorten_value(key)}: must be a token's id")
    fields = Fields(token if isinstance(token, Mapping) else {}, f"{field}.{key}")
    flags = {name: fields.read_flag(name) for name in ("lstrip", "rstrip", "single_word", "special")}
    content = fields.read_text("content")
    return int(key), AddedToken(
        content, normalized=fields.read_flag("normalized", default=not flags["special"]), **flags
    )


def tokenizer_text(document: dict[str, Any]) -> str:
    """Serialize a parsed tokenizer.json."""
    return json.dumps(document, ensure_ascii=False)
