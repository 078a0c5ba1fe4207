"""The process that tries whether a grammar compiles, and within which time."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.limited.worker import Answer, serve_requests
from paternoster_engine.sampling.grammars.compile_source import compile_source
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary


def prepare_compiler(given: Mapping[str, Any]) -> Answer:
    """The vocabulary, its tokens as Latin-1; then sources of grammars come."""
    tokens = [token.encode("latin-1") for token in given["tokens"]]
    vocabulary = Vocabulary(tokens, given["special"], given["ends"])
    tokenizer = vocabulary.build_tokenizer()
    specials = frozenset(tokens[i].decode(errors="replace") for i in vocabulary.special)

    def compile_request(request: Mapping[str, Any]) -> dict[str, Any]:
        made = compile_source(tokenizer, GrammarSource(**request), specials)
        return {"grammar": made.text, "unenforced": made.unenforced}

    return compile_request


if __name__ == "__main__":
    serve_requests(prepare_compiler, GrammarError)
