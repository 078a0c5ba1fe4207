"""The library's tokenizer from the ``tokenizer.*`` fields of a GGUF file."""

from collections.abc import Mapping
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
_NAMES = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "unknown": "unk", "padding": "pad"}
"""GGUF's name of a special token -> that of chat templates."""
_ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>")
"""Control tokens that end an answer, also in files that name the end of a document alone, as llama.cpp has it."""
_ENDS_OF_HARMONY = ("<|return|>", "<|call|>")
"""The same in OpenAI's harmony format, whose answers consist of messages that end with <|end|>."""


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
        for name in _NAMES
        if f"tokenizer.ggml.{name}_token_id" in metadata
    }
    around = _count_around(fields, ids, adds_bos=adds_bos)
    if around:
        # By role and not by text, which may have any characters.
        single = [name if name in around else "$A" for name in ("bos", "text", "eos") if name in (*around, "text")]
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=list(around.items()))
    ending = _ENDS_OF_HARMONY if _ENDS_OF_HARMONY[0] in tokens else _ENDS_OF_TURN
    ends = [i for i, token in enumerate(tokens) if types[i] == CONTROL and token in ending]
    return FileVocabulary(
        backend,
        spelling,
        [*(ids[name] for name in ("eos", "eot", "eom") if name in ids), *ends],
        {f"{_NAMES[name]}_token": tokens[i] for name, i in ids.items() if name not in ("eot", "eom")},
        fields.read_text("tokenizer.chat_template", default=None),
        fields.read_text("tokenizer.chat_template.tool_use", default=None),
    )


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
