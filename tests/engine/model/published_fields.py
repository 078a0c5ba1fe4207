"""Fields of files that publishers put on the hub, written anew from their public values."""

from typing import Any


def of_llama(hidden: int, wide: int, layers: int, heads: int, kv_heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    """What transformers' 4th version writes for a Llama, and for most families beside their own."""
    return {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": hidden, "initializer_range": 0.02,
        "intermediate_size": wide, "max_position_embeddings": 32_768, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": heads, "num_hidden_layers": layers, "num_key_value_heads": kv_heads, "pretraining_tp": 1,
        "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 10_000.0, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "transformers_version": "4.46.0", "use_cache": True, "vocab_size": vocab, **more,
    }  # fmt: skip


LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
GEMMA = {
    "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256, "cache_implementation": "hybrid", "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip
LONG_ROPE = {"type": "longrope", "short_factor": [1.0] * 24 + [1.5] * 24, "long_factor": [2.0] * 48}
BERT = {
    "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 384, "initializer_range": 0.02,
    "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
    "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0, "position_embedding_type": "absolute",
    "transformers_version": "4.8.2", "type_vocab_size": 2, "use_cache": True, "vocab_size": 30_522,
}  # fmt: skip

DECODERS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B-Instruct": of_llama(
        4096, 14_336, 32, 32, 8, 128_256, max_position_embeddings=131_072, rope_scaling=LLAMA3, rope_theta=500_000.0
    ),
    "SmolLM2-135M-Instruct": of_llama(
        576, 1536, 30, 9, 3, 49_152, max_position_embeddings=8192, rope_theta=100_000, tie_word_embeddings=True,
        is_llama_config=True, rope_interleaved=False, pad_token_id=2,
        **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}},
    ),
    "Mistral-7B-Instruct-v0.2": of_llama(
        4096, 14_336, 32, 32, 8, 32_000, model_type="mistral", architectures=["MistralForCausalLM"], rope_theta=1e6,
        sliding_window=None,
    ),
    "Mixtral-8x7B-Instruct-v0.1": of_llama(
        4096, 14_336, 32, 32, 8, 32_000, model_type="mixtral", architectures=["MixtralForCausalLM"], rope_theta=1e6,
        sliding_window=None, num_experts_per_tok=2, num_local_experts=8, output_router_logits=False,
        router_aux_loss_coef=0.02,
    ),
    "Qwen2.5-7B-Instruct": of_llama(
        3584, 18_944, 28, 28, 4, 152_064, model_type="qwen2", architectures=["Qwen2ForCausalLM"], rope_theta=1e6,
        max_window_layers=28, sliding_window=131_072, use_sliding_window=False, rms_norm_eps=1e-6,
    ),
    "DeepSeek-R1-Distill-Qwen-7B": of_llama(
        3584, 18_944, 28, 28, 4, 152_064, model_type="qwen2", architectures=["Qwen2ForCausalLM"], rope_theta=10_000,
        max_window_layers=28, sliding_window=4096, use_sliding_window=False, use_mrope=False, rms_norm_eps=1e-6,
    ),
    "gte-Qwen2-1.5B-instruct": of_llama(
        1536, 8960, 28, 12, 2, 151_646, model_type="qwen2", architectures=["Qwen2ForCausalLM"], is_causal=False,
        auto_map={"AutoModel": "modeling_qwen.Qwen2Model"}, max_window_layers=21, sliding_window=131_072,
        use_sliding_window=False, rope_theta=1e6,
    ),
    "Qwen3-8B": of_llama(
        4096, 12_288, 36, 32, 8, 151_936, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=128,
        max_position_embeddings=40_960, max_window_layers=36, sliding_window=None, use_sliding_window=False,
        rope_theta=1e6, rms_norm_eps=1e-6,
    ),
    "Qwen3-30B-A3B": of_llama(
        2048, 6144, 48, 32, 4, 151_936, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], head_dim=128,
        decoder_sparse_step=1, max_window_layers=48, mlp_only_layers=[], moe_intermediate_size=768,
        norm_topk_prob=True, num_experts=128, num_experts_per_tok=8, output_router_logits=False,
        router_aux_loss_coef=0.001, sliding_window=None, use_sliding_window=False, rope_theta=1e6,
    ),
    "gemma-2-9b-it": of_llama(
        3584, 14_336, 42, 16, 8, 256_000, model_type="gemma2", architectures=["Gemma2ForCausalLM"], **GEMMA,
        attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sliding_window=4096, sliding_window_size=4096,
        max_position_embeddings=8192,
    ),
    "gemma-3-12b-it": {
        "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255_999, "eoi_token_index": 256_000,
        "eos_token_id": [1, 106], "image_token_index": 262_144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
        "model_type": "gemma3", "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
        "text_config": {
            "hidden_size": 3840, "intermediate_size": 15_360, "model_type": "gemma3_text", "num_attention_heads": 16,
            "num_hidden_layers": 48, "num_key_value_heads": 8, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
            "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
        },
    },
    "embeddinggemma-300m": of_llama(
        768, 1152, 24, 3, 1, 262_144, model_type="gemma3_text", architectures=["Gemma3TextModel"],
        **GEMMA | {"cache_implementation": None}, use_bidirectional_attention=True, sliding_window=512,
        _sliding_window_pattern=6, rope_local_base_freq=10_000.0, attn_logit_softcapping=None,
        final_logit_softcapping=None, layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 4,
        max_position_embeddings=2048,
    ),
    "Phi-3.5-mini-instruct": of_llama(
        3072, 8192, 32, 32, 32, 32_064, model_type="phi3", architectures=["Phi3ForCausalLM"], embd_pdrop=0.0,
        resid_pdrop=0.0, original_max_position_embeddings=4096, max_position_embeddings=131_072,
        rope_scaling=LONG_ROPE, sliding_window=262_144, auto_map={"AutoModelForCausalLM": "modeling_phi3.Phi3"},
    ),
    "SmolLM3-3B": of_llama(
        2048, 11_008, 36, 16, 4, 128_256, model_type="smollm3", architectures=["SmolLM3ForCausalLM"],
        layer_types=["full_attention"] * 36, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9,
        max_window_layers=28, sliding_window=None, use_sliding_window=False, rope_theta=5e6, pad_token_id=128_004,
    ),
    "OLMo-2-1124-7B": of_llama(
        4096, 11_008, 32, 32, 32, 100_352, model_type="olmo2", architectures=["Olmo2ForCausalLM"], rope_theta=500_000,
    ),
    "Olmo-3-1025-7B": of_llama(
        4096, 11_008, 32, 32, 32, 100_278, model_type="olmo3", architectures=["Olmo3ForCausalLM"], rope_theta=500_000,
        layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8, sliding_window=4096, rms_norm_eps=1e-6,
        max_position_embeddings=65_536,
        rope_scaling={
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32,
            "beta_slow": 1, "attention_factor": 1.2079441541679836,
        },
    ),
    "granite-3.3-8b-instruct": of_llama(
        4096, 12_800, 40, 32, 8, 49_159, model_type="granite", architectures=["GraniteForCausalLM"],
        attention_multiplier=0.0078125, embedding_multiplier=12.0, logits_scaling=16.0, residual_multiplier=0.22,
        rope_theta=1e7, tie_word_embeddings=True,
    ),
    "gpt-oss-20b": of_llama(
        2880, 2880, 24, 64, 8, 201_088, model_type="gpt_oss", architectures=["GptOssForCausalLM"], attention_bias=True,
        experts_per_token=4, head_dim=64, initial_context_length=4096, num_experts_per_tok=4, num_local_experts=32,
        layer_types=["sliding_attention", "full_attention"] * 12, output_router_logits=False, rope_theta=150_000,
        router_aux_loss_coef=0.9, sliding_window=128, swiglu_limit=7.0, max_position_embeddings=131_072,
        rope_scaling={
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        },
        quantization_config={"modules_to_not_convert": ["model.embed_tokens"], "quant_method": "mxfp4"},
    ),
}  # fmt: skip
ENCODERS: dict[str, dict[str, Any]] = {
    "all-MiniLM-L6-v2": BERT,
    "bge-reranker-base": BERT | {
        "architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta", "bos_token_id": 0,
        "classifier_dropout": None, "eos_token_id": 2, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
        "max_position_embeddings": 514, "num_hidden_layers": 12, "output_past": True, "pad_token_id": 1,
        "type_vocab_size": 1, "vocab_size": 250_002, "torch_dtype": "float32",
    },
}  # fmt: skip
OTHER_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "DeepSeek-V2-Lite": {"model_type": "deepseek_v2", "kv_lora_rank": 512, "n_shared_experts": 2},
    "c4ai-command-r-v01": {"model_type": "cohere", "logit_scale": 0.0625, "use_qk_norm": False},
    "stablelm-2-1_6b": {"model_type": "stablelm", "partial_rotary_factor": 0.25, "use_parallel_residual": False},
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "layer_norm_epsilon": 1e-5},
    "ModernBERT-base": {"model_type": "modernbert", "global_attn_every_n_layers": 3, "local_attention": 128},
    "llama-embed-nemotron-8b": {"model_type": "llama_bidirec", "hidden_size": 4096, "pooling": "avg"},
    "gte-base-en-v1.5": {"model_type": "new", "rope_theta": 500_000, "unpad_inputs": False},
}
"""Some fields of models of no family here."""


def of_gguf(architecture: str, layers: int, width: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    """What llama.cpp's converter writes."""
    own = {
        "context_length": 32_768, "embedding_length": width, "block_count": layers, "feed_forward_length": 4 * width,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10_000.0, **more,
    }  # fmt: skip
    return {
        "general.architecture": architecture, "general.type": "model", "general.name": "A name",
        "general.size_label": "7B", "general.license": "mit", "general.file_type": 15,
        "general.quantization_version": 2, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"],
        "quantize.imatrix.file": "a.dat", **{f"{architecture}.{key}": value for key, value in own.items()},
    }  # fmt: skip


GGUF_HEADS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B-Instruct.gguf": of_gguf(
        "llama", 32, 4096, 32, 8, vocab_size=128_256, **{"rope.dimension_count": 128, "attention.key_length": 128},
        **{"attention.value_length": 128},
    ),
    "Mixtral-8x7B.gguf": of_gguf("llama", 32, 4096, 32, 8, vocab_size=32_000, expert_count=8, expert_used_count=2),
    "Qwen2.5-7B-Instruct.gguf": of_gguf("qwen2", 28, 3584, 28, 4),
    "Qwen3-Embedding-0.6B.gguf": of_gguf(
        "qwen3", 28, 1024, 16, 8, pooling_type=3, **{"attention.key_length": 128, "attention.value_length": 128}
    ),
    "gemma-2-9b-it.gguf": of_gguf(
        "gemma2", 42, 3584, 16, 8, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        **{"attention.key_length": 256, "attention.value_length": 256, "attention.sliding_window": 4096},
    ),
    "granite-3.3-8b.gguf": of_gguf(
        "granite", 40, 4096, 32, 8, embedding_scale=12.0, residual_scale=0.22, logit_scale=16.0,
        **{"attention.scale": 0.0078125, "rope.dimension_count": 128},
    ),
    "Phi-3.5-mini-instruct.gguf": of_gguf(
        "phi3", 32, 3072, 32, 32, **{"rope.dimension_count": 96, "rope.scaling.original_context_length": 4096},
        **{"rope.scaling.attn_factor": 1.1902, "attention.sliding_window": 262_144},
    ),
}  # fmt: skip
GGUF_DIVISORS = {"Phi-3.5-mini-instruct.gguf": 48}
"""Sizes of the tensors ``rope_factors_short.weight`` that files have."""
GENERATION_CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B-Instruct": {
        "bos_token_id": 128_000, "do_sample": True, "eos_token_id": [128_001, 128_008, 128_009], "temperature": 0.6,
        "top_p": 0.9, "transformers_version": "4.42.3",
    },
    "Qwen2.5-7B-Instruct": {
        "bos_token_id": 151_643, "pad_token_id": 151_643, "do_sample": True, "eos_token_id": [151_645, 151_643],
        "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "transformers_version": "4.37.0",
    },
    "gemma-3-12b-it": {
        "cache_implementation": "hybrid", "do_sample": True, "eos_token_id": [1, 106], "top_k": 64, "top_p": 0.95,
        "transformers_version": "4.50.0.dev0",
    },
    "Phi-3.5-mini-instruct": {
        "_from_model_config": True, "bos_token_id": 1, "eos_token_id": [32_007, 32_001, 32_000], "pad_token_id": 32_000,
        "transformers_version": "4.43.3",
    },
}  # fmt: skip
