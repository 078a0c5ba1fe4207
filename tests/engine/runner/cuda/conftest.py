"""A Llama of random weights, small enough for thousands of steps."""

import pytest
import torch

from gpu.random_weights import random_weights
from paternoster_engine.model.config import ModelConfig
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


@pytest.fixture(scope="session")
def tiny() -> Decoder:
    """In float32; its tokens are far from uniform, as a trained model's are."""
    weights = random_weights(CONFIG, torch.float32, torch.Generator().manual_seed(5), spread=3.0)
    return Decoder(CONFIG, weights, torch.float32, torch.device("cpu"))
