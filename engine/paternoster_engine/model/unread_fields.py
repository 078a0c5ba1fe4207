"""Fields of a model's files that nothing reads: those known to be harmless, those that are refused, and others.

A reference computes something else where a field of the second kind is not what the tables here allow. Fields that are
in no table are named in the log.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import shorten_value

MOST_NAMED = 20
"""Most fields that a note names."""


class RecordedFields(Mapping[str, Any]):
    """A JSON object, or a GGUF file's fields, that records which of its keys are read, and so do the objects in it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()
        self._inner: dict[str, RecordedFields] = {}

    @classmethod
    def wrap_fields(cls, values: Mapping[str, Any]) -> "RecordedFields":
        """``values`` themselves where they are recorded already."""
        return values if isinstance(values, cls) else cls(values)

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        self._read.add(key)
        return self._inner.setdefault(key, RecordedFields(value)) if isinstance(value, Mapping) else value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def list_read(self, prefix: str = "") -> list[str]:
        """The keys that were read, those of inner objects with a dot between."""
        plain = [prefix + key for key in self._values if key in self._read and key not in self._inner]
        return plain + [name for key, inner in self._inner.items() for name in inner.list_read(f"{prefix}{key}.")]

    def list_unread(self, prefix: str = "") -> list[tuple[str, Any]]:
        """The keys that were not read, with their values."""
        found = [(prefix + key, value) for key, value in self._values.items() if key not in self._read]
        return found + [item for key, inner in self._inner.items() for item in inner.list_unread(f"{prefix}{key}.")]


@dataclass(frozen=True, slots=True)
class FieldTables:
    """Fields of one kind of file, by names without :attr:`optional`."""

    file: str
    optional: re.Pattern[str]
    """Prefix of a name that has no meaning of its own."""
    harmless: re.Pattern[str]
    allowed: Mapping[str, Sequence[Any]]
    """Field that changes the sums -> the values with which it does not, of a list for each element; null is another."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The fields of a file that were not read, in three parts."""

    harmless: Sequence[str]
    refused: Sequence[tuple[str, Any, Sequence[Any]]]
    """Names, values, and the values that are allowed."""
    unknown: Sequence[tuple[str, Any]]


def classify_unread(document: RecordedFields, tables: FieldTables) -> Unread:
    """Sort the fields that nothing has read so far."""
    harmless, refused, unknown = [], [], []
    for name, value in document.list_unread():
        short = tables.optional.sub("", name)
        allowed = tables.allowed.get(short)
        items = value if isinstance(value, list) else [value]
        if value is None or (isinstance(value, Mapping | list) and not value) or tables.harmless.fullmatch(short):
            harmless.append(name)
        elif allowed is None:
            unknown.append((name, value))
        elif all(item in allowed for item in items):
            harmless.append(name)
        else:
            refused.append((name, value, allowed))
    return Unread(harmless, refused, unknown)


def refuse_unread(document: RecordedFields, tables: FieldTables) -> None:
    """Raise :class:`UnsupportedModelError` for the first field that changes the sums and that nothing has read."""
    for name, value, allowed in classify_unread(document, tables).refused:
        must = " or ".join(["absent", *map(repr, allowed)])
        raise UnsupportedModelError(f"{tables.file}: {name} is {shorten_value(value)}: must be {must} in this family")


def note_unread(document: RecordedFields, tables: FieldTables) -> list[str]:
    """Return a note that names the fields of which nothing is known, if there are any."""
    unknown = classify_unread(document, tables).unknown
    if not unknown:
        return []
    named = ", ".join(f"{name} ({shorten_value(value)})" for name, value in unknown[:MOST_NAMED])
    more = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
    return [f"{tables.file}: {len(unknown)} of its fields are not read and not known to be harmless: {named}{more}"]


def _join_names(text: str) -> re.Pattern[str]:
    """Any of the patterns that ``text`` has between white space."""
    return re.compile("|".join(text.split()))


CONFIG = FieldTables(
    "config.json",
    re.compile(r"^text_config\.|(?<=rope_)(scaling|parameters)\.(full_attention\.)?"),
    _join_names(r"""
        _.* .*_pdrop .*dropout.* .*_token_id .*_token_index .*_token_ids torch_dtype dtype .*_version
        output_(attentions|hidden_states|router_logits|past) use_cache cache_implementation initializer_.* init_.*
        return_dict.* architectures auto_map attn_implementation chunk_size_feed_forward problem_type num_local_experts
        model_type task_specific_params id2label.* label2id.* num_labels finetuning_task gradient_checkpointing
        pretraining_tp router_(aux_loss_coef|jitter_noise|z_loss_coef) .*aux_loss.* tokenizer_class model_max_length
        (vision|audio|image|video|mm|boi|eoi|boa|eoa|projector)_.* image_seq_length multimodal_.* torchscript
        is_matryoshka matryoshka_dimensions sentence_transformers.* sbert_.* pooler_.* directionality
        tie_encoder_decoder num_nextn_predict_layers unsloth_.* model_name experts_per_token initial_context_length
        is_llama_config transformers\.js_config sliding_window_size
        rope_finetuned rope_long_factor rope_mrope_section rope_original_max_position_embeddings rope_rope_theta
        rope_factor rope_truncate
        quantization_config\.(damp_.*|true_sequential|static_groups|model_name_or_path|model_file_base_name|dataset)
        quantization_config\.(block_name_to_quantize|module_name_preceding_first_block|lm_head|batch_size|tokenizer)
        quantization_config\.(modules_.*|ignored_layers|ignore|cache_block_outputs|exllama_.*|use_.*|max_input_length)
        quantization_config\.(pad_token_id|hyb_act|meta.*|backend|do_fuse|fuse_max_seq_len|quantization_status)
        quantization_config\.(global_compression_ratio|kv_cache_scheme.*|activation_scheme|scale_fmt|producer.*|iters)
        quantization_config\.(nsamples|seqlen|low_gpu_mem_usage|provider|packing_format|enable_.*|autoround_version|lr)
        quantization_config\.(config_groups\.[^.]+\.(targets|format|input_activations.*|output_activations.*))
        quantization_config\.(config_groups\.[^.]+\.weights\.(actorder|dynamic|observer.*|strategy|scale_dtype|zp_dtype))
        quantization_config\.(version|bits|desc_act|quant_algo|format|sym)
    """),
    {
        "add_cross_attention": (False,),
        "alibi": (False,),
        "attention_chunk_size": (),
        "attention_multiplier": (),
        "attn_logit_softcapping": (0,),
        "attn_temperature_tuning": (False,),
        "clip_qkv": (),
        "dim_model_base": (),
        "embedding_multiplier": (1,),
        "final_logit_softcapping": (0,),
        "first_k_dense_replace": (0,),
        "is_encoder_decoder": (False,),
        "layer_types": ("full_attention",),
        "logit_scale": (1,),
        "logits_scaling": (1,),
        "moe_layer_freq": (1,),
        "n_group": (1,),
        "n_shared_experts": (0,),
        "no_rope_layer_interval": (),
        "no_rope_layers": (1,),
        "norm_topk_prob": (True,),
        "num_shared_experts": (0,),
        "parallel_attn": (False,),
        "position_embedding_type": ("rope", "rotary"),
        "qk_layernorm": (False,),
        "qk_norm": (False,),
        "query_pre_attn_scalar": (),
        "residual_multiplier": (1,),
        "rope_alpha": (1,),
        "rope_interleave": (False,),
        "rope_interleaved": (False,),
        "rope_llama_4_scaling_beta": (0,),
        "rope_long_mscale": (),
        "rope_short_mscale": (),
        "rope_sliding_attention.factor": (1,),
        "rope_sliding_attention.rope_type": ("default",),
        "rotary_pct": (1,),
        "routed_scaling_factor": (1,),
        "scale_depth": (),
        "scale_emb": (1,),
        "scoring_func": ("softmax",),
        "shared_expert_intermediate_size": (0,),
        "shared_intermediate_size": (0,),
        "swiglu_alpha": (1.702,),
        "swiglu_limit": (7,),
        "topk_group": (1,),
        "topk_method": ("greedy",),
        "use_alibi": (False,),
        "use_bidirectional_attention": (False,),
        "use_mrope": (False,),
        "use_parallel_residual": (False,),
        "use_qk_norm": (False,),
        "quantization_config.fmt": ("e4m3",),
        "quantization_config.is_marlin_format": (False,),
        "quantization_config.pack_dtype": ("int32",),
        "quantization_config.sparsity_config.format": ("dense",),
        "quantization_config.transform_config": (),
        "quantization_config.zero_point": (True,),
    },
)
"""Fields of decoders; ``rope_`` stands for ``rope_parameters`` and ``rope_scaling``."""
ENCODER_CONFIG = FieldTables(
    "config.json",
    re.compile("(?!)"),
    CONFIG.harmless,
    {
        "add_cross_attention": (False,),
        "is_decoder": (False,),
        "is_encoder_decoder": (False,),
        "quantization_config": (),
        "use_bidirectional_attention": (True,),
        "is_causal": (False,),
    },
)
GENERATION_CONFIG = FieldTables(
    "generation_config.json",
    re.compile("(?!)"),
    _join_names(r"""
        _.* .*_token_id transformers_version use_cache cache_.* trust_remote_code return_.* output_.* chat_format
        num_return_sequences max_matching_ngram_size prompt_lookup_num_tokens .*assistant.* max_window_size
        early_stopping length_penalty diversity_penalty num_beam_groups remove_invalid_values renormalize_logits
        low_memory max_time compile_config disable_compile token_healing do_sample is_assistant
    """),
    {},
)
GGUF = FieldTables(
    "the GGUF file",
    re.compile(r"^(?!general\.|tokenizer\.|split\.|quantize\.|imatrix\.)[^.]+\."),
    _join_names(r"""
        general\.(?!type|sampling).* tokenizer\..* split\..* quantize\..* imatrix\..* vocab_size tensor_data_layout
        rope\.scaling\.(finetuned|original_context_length) pooling_type attention\.layer_norm_epsilon
        expert_feed_forward_length general\.sampling\.(mirostat_.*|xtc_threshold)
    """),
    {
        "activation_sparsity_scale": (),
        "attention.clamp_kqv": (0,),
        "attention.key_length_swa": (),
        "attention.max_alibi_bias": (0,),
        "attention.output_scale": (),
        "attention.scale": (),
        "attention.shared_kv_layers": (0,),
        "attention.temperature_scale": (0,),
        "attention.value_length_swa": (),
        "attn_logit_softcapping": (0,),
        "embedding_scale": (0, 1),
        "expert_gating_func": (1, 3),
        "expert_group_count": (0, 1),
        "expert_group_used_count": (0, 1),
        "expert_shared_count": (0,),
        "expert_shared_feed_forward_length": (0,),
        "expert_weights_norm": (True,),
        "expert_weights_scale": (0, 1),
        "final_logit_softcapping": (0,),
        "general.type": ("model",),
        "leading_dense_block_count": (0,),
        "logit_scale": (0, 1),
        "residual_scale": (0, 1),
        "rope.dimension_sections": (),
        "rope.scale_linear": (1,),
        "rope.scaling.alpha": (0, 1),
        "rope.scaling.attn_factor": (1,),
        "rope.scaling.yarn_attn_factor": (1,),
        "rope.scaling.yarn_ext_factor": (-1, 1),
        "rope.scaling.yarn_log_multiplier": (0,),
        "router_logit_softcapping": (0,),
        "use_parallel_residual": (False,),
    },
)
