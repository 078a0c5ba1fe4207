"""A Llama of random weights, small enough for thousands of steps."""

from dataclasses import replace

import pytest
import torch

from gpu.engines.random_weights import random_weights
from paternoster_engine.model.config import Layer, ModelConfig
from paternoster_engine.model.decoder import Decoder

CONFIG = ModelConfig(
    architecture="llama",
    name="tiny",
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    context_length=96,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tied_embeddings=False,
)


def random_model(config: ModelConfig) -> Decoder:
    """In float32; its tokens are far from uniform, as a trained model's are."""
    weights = random_weights(config, torch.float32, torch.Generator().manual_seed(5), spread=3.0)
    return Decoder(config, weights, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="session")
def tiny() -> Decoder:
    return random_model(CONFIG)


@pytest.fixture(scope="session")
def windowed() -> Decoder:
    """Two groups of layers: one that sees everything, and one with a window of six tokens."""
    layers = tuple(Layer(CONFIG.rope, window) for window in ([None, 6] * CONFIG.num_layers)[: CONFIG.num_layers])
    model = random_model(replace(CONFIG, layer_kinds=layers))
    assert model.config.kv_windows == (None, 6)
    return model
