"""Small encoders with random weights, as transformers makes and writes them, and a tokenizer for them."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers import decoders as spelled

WORDS = ["a", "b", "cat", "dog", "##s", "##ed", "walk", "run", "the", "on", "in", "over", ".", ",", "?"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 33, "intermediate_size": 70, "num_hidden_layers": 3, "num_attention_heads": 3,
    "max_position_embeddings": 48, "initializer_range": 0.4, "pad_token_id": 0,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "bert": {"type_vocab_size": 2},
    "bert, tanh": {"type_vocab_size": 2, "hidden_act": "gelu_new", "num_attention_heads": 1},
    "bert, relu": {"type_vocab_size": 2, "hidden_act": "relu", "layer_norm_eps": 0.05},
    "roberta": {"type_vocab_size": 1, "pad_token_id": 1},
    "xlm-roberta": {"type_vocab_size": 1, "pad_token_id": 3},
    "camembert": {"type_vocab_size": 1, "pad_token_id": 1},
}
"""The name's first word is the ``model_type``."""


def make(name: str, *, head: bool = False) -> Any:
    """transformers' model, with random norms and biases: ones and zeros would hide that they are read."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    torch.manual_seed(6)
    config = AutoConfig.for_model(
        name.split(",")[0], **{**SIZES, **MODELS[name]}, **({"num_labels": 1} if head else {})
    )
    kind = AutoModelForSequenceClassification if head else AutoModel
    model = kind.from_config(config).eval().float()
    for key, weight in model.named_parameters():
        if "LayerNorm.weight" in key:
            torch.nn.init.normal_(weight, 1.0, 0.3)
        elif key.endswith("bias"):
            torch.nn.init.normal_(weight, 0.0, 0.5)
    return model


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """BERT's kind, with truncation and padding that were left in the file."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.add_special_tokens(SPECIAL)
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = spelled.WordPiece()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.enable_truncation(6)
    backend.enable_padding(length=20)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")


def write_modules(folder: Path, mode: str, *, normalized: bool = True, **files: Any) -> None:
    """What sentence-transformers writes beside a model; ``files``: others by their names without ``.json``."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalized else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 33, mode: True}))
    for name, document in files.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
