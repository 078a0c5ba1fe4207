"""Sizes of the models whose speed is measured; their weights are drawn at random, as speed depends on sizes alone."""

from typing import Any

from paternoster_engine.model.config import Block, ModelConfig


def _llama(name: str, **sizes: Any) -> ModelConfig:
    rest = {"architecture": "llama", "context_length": 8192, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5}
    return ModelConfig(name=name, **{**rest, **sizes})


def _qwen3(name: str, **sizes: Any) -> ModelConfig:
    return _llama(name, architecture="qwen3", block=Block(head_norm="each"), rope_theta=1e6, rms_norm_eps=1e-6, **sizes)


SMOLLM2 = _llama(
    "SmolLM2-135M", vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, tied_embeddings=True,
)  # fmt: skip
QWEN3_SMALL = _qwen3(
    "Qwen3-0.6B", vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_layers=28, num_heads=16,
    num_kv_heads=8, head_dim=128, tied_embeddings=True,
)  # fmt: skip
LLAMA3 = _llama(
    "Llama-3-8B", vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
    num_kv_heads=8, head_dim=128, tied_embeddings=False,
)  # fmt: skip
QWEN3 = _qwen3(
    "Qwen3-14B", vocab_size=151_936, hidden_size=5120, intermediate_size=17_408, num_layers=40, num_heads=40,
    num_kv_heads=8, head_dim=128, tied_embeddings=False,
)  # fmt: skip
TINY = _llama(
    "tiny", vocab_size=512, hidden_size=64, intermediate_size=96, num_layers=2, num_heads=4, num_kv_heads=2,
    head_dim=64, tied_embeddings=False, context_length=256,
)  # fmt: skip
"""For runs that only show that everything runs."""
