"""A small model with random weights in a folder as publishers have it, with the files that a test gives it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

from paternoster_engine.model.vocabulary.spelling import BYTE_OF

SPECIAL = ("<|end|>", "<|start|>", "<|pad|>")
BYTES = sorted(BYTE_OF)
END, START, PAD = range(len(BYTES), len(BYTES) + 3)
VOCAB = len(BYTES) + len(SPECIAL)
"""Tokens of tokenizer.json, and rows of the model."""
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 256, "initializer_range": 0.3,
    "tie_word_embeddings": True, "bos_token_id": START, "eos_token_id": END, "pad_token_id": PAD,
}  # fmt: skip
TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}<|start|>assistant\n"
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "chat_template": TEMPLATE}


def tokenizer_json(*more: tuple[int, str]) -> dict[str, Any]:
    """A byte for each token, and control tokens; ``more``: added tokens besides, with their ids."""
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(BYTES)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    document: dict[str, Any] = json.loads(backend.to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document["added_tokens"] += [{"id": i, "content": text, **flags} for i, text in more]
    return document


def write_repository(
    folder: Path, files: Mapping[str, Any] | None = None, *, family: str = "llama", shards: int = 1, **sizes: Any
) -> Path:
    """``folder`` with a model of ``family``; ``files``: by name, in place of or beside the usual ones (None: without).

    What is no text is written as JSON.
    """
    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **{**SIZES, **sizes})
    model = AutoModelForCausalLM.from_config(config).eval()
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
    model.save_pretrained(folder, max_shard_size=size if shards == 1 else size // (shards - 1))
    (folder / "generation_config.json").unlink(missing_ok=True)
    usual = {"tokenizer.json": tokenizer_json(), "tokenizer_config.json": CONFIG}
    for name, content in {**usual, **(files or {})}.items():
        path = folder / name
        if content is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def change_config(folder: Path, **fields: Any) -> None:
    """Fields of config.json, None for one that is left out."""
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
