"""A small model of each family with random weights, as transformers makes it and writes it."""

from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.checkpoints.shapes import check_shapes
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
VOCAB, CONTEXT, BLOCK_SIZE = 320, 512, 8
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 60, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": CONTEXT, "initializer_range": 0.15,
    "tie_word_embeddings": False, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
ODD = {"num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 48}
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
    "long_factor": [9.0] * 6, "original_max_position_embeddings": 256, "partial_rotary_factor": 0.75,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": ROPE, **ODD},
    "llama, 3.1": {"rope_parameters": LLAMA3, "tie_word_embeddings": True},
    "llama, biased": {"rope_parameters": ROPE, "attention_bias": True, "mlp_bias": True},
    "mistral": {"rope_parameters": ROPE, "sliding_window": 24},
    "qwen2": {"rope_parameters": ROPE, **ODD, "head_dim": None},
    "qwen2, windows": {
        "rope_parameters": ROPE, "head_dim": None, "use_sliding_window": True, "sliding_window": 40,
        "max_window_layers": 2,
    },
    "qwen3": {"rope_parameters": ROPE, "tie_word_embeddings": True},
    "mixtral": {"rope_parameters": ROPE, "num_local_experts": 5, "num_experts_per_tok": 2},
    "qwen3_moe": {
        "rope_parameters": ROPE, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
        "norm_topk_prob": True, "num_local_experts": 8,
    },
    "qwen3_moe, mixed": {
        "rope_parameters": ROPE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "norm_topk_prob": False, "mlp_only_layers": [1], "num_local_experts": 4,
    },
    "granite": {
        "rope_parameters": ROPE, "head_dim": None, "embedding_multiplier": 3.0, "attention_multiplier": 0.3,
        "residual_multiplier": 0.4, "logits_scaling": 2.0,
    },
    "smollm3": {"rope_parameters": ROPE, "head_dim": None},
    "olmo2": {"rope_parameters": ROPE, "head_dim": None},
    "olmo3": {
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 500_000.0, "factor": 4.0, "original_max_position_embeddings": 128,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "head_dim": None, "num_hidden_layers": 5, "sliding_window": 20,
    },
    "phi3": {"rope_parameters": ROPE, "head_dim": None, "sliding_window": 30, **ODD},
    "phi3, long": {"rope_parameters": LONG_ROPE, "head_dim": None, "hidden_size": 96},
    "gemma2": {
        "rope_parameters": ROPE, "sliding_window": 20, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0, "tie_word_embeddings": True,
    },
    "gemma3_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "num_hidden_layers": 7, "sliding_window": 20, "query_pre_attn_scalar": 16, "tie_word_embeddings": True,
    },
    "gpt_oss": {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 150_000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 128,
        },
        "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 20, "attention_bias": True,
    },
    "gpt_oss, published": {
        "rope_parameters": ROPE, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 20,
        "attention_bias": True, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    },
}  # fmt: skip
"""What is tried of each family; the name's first word is the ``model_type``."""
SAFETENSORS_ALONE = (
    "llama, 3.1", "mistral", "qwen2, windows", "qwen3_moe, mixed", "olmo3", "phi3, long", "gpt_oss, published",
)  # fmt: skip
GGUF = {name: name.split(",")[0] for name in MODELS if name not in SAFETENSORS_ALONE}
GGUF |= {"gemma3_text": "gemma3", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}
"""Architectures of GGUF files with the same fields, by family."""


def make(name: str) -> Any:
    """transformers' model. Norms and biases are random too: ones and zeros would hide that they are read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(6)
    changes = MODELS[name]
    sizes = {key: value for key, value in {**SIZES, **changes}.items() if key != "head_dim" or value is not None}
    config = AutoConfig.for_model(name.split(",")[0], **sizes)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    for key, weight in model.named_parameters():
        if "norm" in key:
            # Gemma's are from 1 on, and its embeddings are large: a model that only repeats them would hide much.
            torch.nn.init.normal_(weight, 2.0 if "gemma" in name else 1.0, 0.3)
        elif key.endswith("bias"):
            torch.nn.init.normal_(weight, 0.0, 0.5)
        elif key.endswith("sinks"):
            torch.nn.init.normal_(weight, 1.0, 1.0)
    return model


def save(model: Any, folder: Path) -> Checkpoint:
    """Save a folder with safetensors."""
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return open_model(folder)


def save_gguf(model: Any, path: Path, architecture: str, tensors_a_part: int = 0) -> Checkpoint:
    """Save like llama.cpp's converter; ``tensors_a_part``: into several files, above 0."""
    config = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer = GGUFWriter(path, architecture, split_max_tensors=tensors_a_part)
    for add, value in (
        (writer.add_block_count, config.num_hidden_layers),
        (writer.add_vocab_size, VOCAB),
        (writer.add_context_length, config.max_position_embeddings),
        (writer.add_embedding_length, config.hidden_size),
        (writer.add_feed_forward_length, config.intermediate_size),
        (writer.add_head_count, heads),
        (writer.add_head_count_kv, kv_heads),
        (writer.add_key_length, head_dim),
        (writer.add_rope_dimension_count, head_dim),
        (writer.add_layer_norm_rms_eps, config.rms_norm_eps),
    ):
        add(value)
    _add_family(writer, config, architecture)
    kind = {name: kind for kind, name in MODEL_ARCH_NAMES.items()}[architecture]
    names = get_tensor_name_map(kind, config.num_hidden_layers)
    for name, tensor in _split_experts(model.state_dict()).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stored = tensor.float()
        if "gemma" in architecture and name.endswith("norm.weight"):
            stored = stored + 1
        part = name.split(".")[-2]
        if architecture in ("llama", "granite", "smollm3") and part in ("q_proj", "k_proj"):
            stored = _in_pairs(stored, heads if part == "q_proj" else kv_heads)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), stored.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_model(min(path.parent.glob(f"{path.stem}-0*.gguf")) if tensors_a_part else path)


def add_to_gguf(path: Path, keys: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A copy of the file with further or other ``keys``, and with further ``tensors``."""
    reader = GGUFReader(path)
    own = {field.name: field.contents() for field in reader.fields.values() if not field.name.startswith("GGUF.")}
    writer = GGUFWriter(path.with_name("changed.gguf"), own.pop("general.architecture"))
    for name, value in (own | keys).items():
        kind = reader.fields[name].types[0] if name in own else GGUFValueType.get_type(value)
        writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    for name, added in (tensors or {}).items():
        writer.add_tensor(name, added.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_name("changed.gguf")


def _split_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With gate and up apart, outputs first, and suffixes, as files have them."""
    swapped = any(name.endswith("sinks") for name in tensors)
    named = {}
    for name, tensor in tensors.items():
        kind = "bias" if name.endswith("_bias") else "weight"
        stem, whole = name.removesuffix("_bias"), tensor.mT if swapped and tensor.dim() == 3 else tensor
        if stem.endswith("experts.gate_up_proj"):
            gate, up = (whole[:, ::2], whole[:, 1::2]) if swapped else whole.chunk(2, 1)
            named[f"{stem.replace('gate_up', 'gate')}.{kind}"] = gate
            named[f"{stem.replace('gate_up', 'up')}.{kind}"] = up
        elif stem.endswith(("experts.down_proj", "sinks")):
            named[f"{stem}.{kind}"] = whole
        else:
            named[name] = tensor
    return named


def _add_family(writer: GGUFWriter, config: Any, architecture: str) -> None:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_string(f"{architecture}.rope.scaling.type", "yarn")
        writer.add_float32(f"{architecture}.rope.scaling.factor", rope["factor"])
        writer.add_uint32(
            f"{architecture}.rope.scaling.original_context_length", rope["original_max_position_embeddings"]
        )
    if rope["rope_type"] == "linear":
        writer.add_string(f"{architecture}.rope.scaling.type", "linear")
        writer.add_float32(f"{architecture}.rope.scaling.factor", rope["factor"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if hasattr(config, "num_experts_per_tok"):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        width = getattr(config, "moe_intermediate_size", config.intermediate_size)
        writer.add_expert_feed_forward_length(width)
    if architecture == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _in_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys as llama.cpp rotates them."""
    halves = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def open_model(path: Path) -> Checkpoint:
    """With the shapes of all tensors checked."""
    checkpoint = open_checkpoint(resolve_source(path.as_uri()))
    check_shapes(checkpoint)
    return checkpoint


def engine(model: Decoder, blocks: int = 400, kv_dtype: torch.dtype = torch.float32, **settings: Any) -> Engine:
    """With blocks of eight tokens."""
    host_blocks = settings.get("host_blocks", 0)
    defaults = {"max_num_seqs": 16, "max_batched_tokens": 256, "max_model_len": 300, "prefix_cache": False}
    sizes = {"block_size": BLOCK_SIZE, "num_blocks": blocks, "windows": model.config.kv_windows}
    config = SchedulerConfig(**{**defaults, **sizes, **settings})
    cache = allocate_kv_cache(KVPoolShape(blocks, BLOCK_SIZE, 0), model.config, kv_dtype, CPU)
    host = HostKVCache(host_blocks, cache) if host_blocks else None
    return Engine(Scheduler(config), ModelRunner(model, cache, Sampler(VOCAB, CPU), host))
