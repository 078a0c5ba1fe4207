"""The library's tokenizer from the ``tokenizer.*`` fields of a GGUF file."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, processors

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.vocabulary.bounds import check_added, check_vocabulary
from paternoster_engine.model.vocabulary.byte_level import byte_level, cut_of
from paternoster_engine.model.vocabulary.file_vocabulary import FileVocabulary
from paternoster_engine.model.vocabulary.library import refused_by_library
from paternoster_engine.model.vocabulary.sentencepiece import build_sentencepiece
from paternoster_engine.model.vocabulary.spelling import ByteLevel, Pieces, Spelling

KINDS = ("gpt2", "llama")
"""``tokenizer.ggml.model``: byte-level BPE; SentencePiece's BPE."""
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""GGUF token types that are matched in the text before BPE."""
_NAMES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
"""GGUF's name of a special token -> that of chat templates."""
_ENDING = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
"""GGUF's names of tokens that end an answer."""
_ENDS = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~[", "<\uff5cend\u2581of\u2581sentence\uff5c>",
}  # fmt: skip
"""Tokens that end an answer in any file, by their texts: a file's fields name one of several (as in llama.cpp)."""
_ENDS_OF_A_FILE = {
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<|file_sep|>",
}  # fmt: skip
"""Tokens between the files of a repository, which models of code write behind a completion: they end it, too."""
_MESSAGES_WITHIN_AN_ANSWER = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})
"""Formats, by their tokens, whose answers consist of messages that end with <|end|>: harmony, Solar Open."""


def read_gguf_vocabulary(metadata: Mapping[str, Any]) -> FileVocabulary:
    """Read the vocabulary from the fields of a GGUF file. Raises :class:`UnsupportedModelError`."""
    fields = Fields(metadata, "the GGUF file")
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"tokenizer.ggml.model is {shorten_value(kind)}: "
            "built in are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece)"
        )
    cut = cut_of(fields) if kind == "gpt2" else None
    tokens = fields.read_texts("tokenizer.ggml.tokens")
    types = fields.read_numbers("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise fields.describe_refusal(
            "the length of tokenizer.ggml.token_type", len(types), f"{len(tokens)}, one a token"
        )
    check_vocabulary(tokens, "tokenizer.ggml.tokens")
    ends = _find_ends(tokens, types)
    # Some files give the end of a turn the type of a word: it would be shown, and an answer would go on behind it.
    types = [CONTROL if i in ends else kind for i, kind in enumerate(types)]
    found = [token for token, kind in zip(tokens, types, strict=True) if kind in (UNKNOWN, CONTROL, USER_DEFINED)]
    check_added(found, "tokenizer.ggml.tokens of the types that are found in texts")
    spelling: Spelling
    with refused_by_library("the GGUF file's vocabulary"):
        if cut is not None:
            backend, spelling, adds_bos = byte_level(fields, tokens, cut), ByteLevel(), cut.adds_bos
        else:
            space_prefix = fields.read_flag("tokenizer.ggml.add_space_prefix", default=True)
            backend = build_sentencepiece(fields, tokens, types, space_prefix=space_prefix)
            spelling, adds_bos = Pieces(strips_space=space_prefix), True
        added = [
            AddedToken(token, special=token_type != USER_DEFINED, normalized=False)
            for token, token_type in zip(tokens, types, strict=True)
            if token_type in (UNKNOWN, CONTROL, USER_DEFINED)
        ]
        backend.add_tokens(added)
    ids = {
        name: fields.read_integer(f"tokenizer.ggml.{name}_token_id", len(tokens) - 1, least=0)
        for name in (*_NAMES, *_ENDING)
        if f"tokenizer.ggml.{name}_token_id" in metadata
    }
    around = _count_around(fields, ids, adds_bos=adds_bos)
    if around:
        # By role and not by text, which may have any characters.
        single = [name if name in around else "$A" for name in ("bos", "text", "eos") if name in (*around, "text")]
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=list(around.items()))
    return FileVocabulary(
        backend,
        spelling,
        [*(ids[name] for name in _ENDING if name in ids), *ends],
        {f"{_NAMES[name]}_token": tokens[i] for name, i in ids.items() if name in _NAMES},
        fields.read_text("tokenizer.chat_template", default=None),
        fields.read_text("tokenizer.chat_template.tool_use", default=None),
    )


def _find_ends(tokens: Sequence[str], types: Sequence[float]) -> dict[int, str]:
    """Find the tokens that end an answer by their texts: id -> text, lowest id first.

    What looks like no word (``<|im_end|>``) is one whatever its type, the rest (``</s>``, ``[EOS]``) as control tokens:
    Gemma's vocabulary has ``</s>`` as HTML.
    """
    ends = _ENDS | _ENDS_OF_A_FILE
    if any(format_tokens <= set(tokens) for format_tokens in _MESSAGES_WITHIN_AN_ANSWER):
        ends -= {"<|end|>"}
    return {
        i: token
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if token in ends and (kind == CONTROL or token.startswith("<|"))
    }


def _count_around(fields: Fields, ids: Mapping[str, int], *, adds_bos: bool) -> dict[str, int]:
    """What is put around a prompt; raises :class:`UnsupportedModelError` for a token that the file does not name."""
    around = {}
    for name, default in (("bos", adds_bos and "bos" in ids), ("eos", False)):
        key = f"tokenizer.ggml.add_{name}_token"
        if fields.read_flag(key, default=default):
            if name not in ids:
                raise fields.describe_refusal(key, True, f"false without tokenizer.ggml.{name}_token_id")
            around[name] = ids[name]
    return around
