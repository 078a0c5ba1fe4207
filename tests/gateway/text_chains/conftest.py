"""The engine in this process that the tests of its server have."""

from tests.engine.conftest import checkpoint, source, tokenizer
from tests.engine.server.conftest import serve

__all__ = ["checkpoint", "serve", "source", "tokenizer"]
