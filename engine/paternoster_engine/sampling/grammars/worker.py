"""The process that tries whether a grammar compiles, and within which time."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.limited.worker import Answer, serve
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.grammar import Grammar, reason
from paternoster_engine.sampling.grammars.limits import MOST_WORK
from paternoster_engine.sampling.grammars.source import GrammarSource, most_items, to_grammar
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_engine.sampling.grammars.work import Work


def prepare(given: Mapping[str, Any]) -> Answer:
    """The vocabulary, its tokens as Latin-1; then sources of grammars come."""
    tokens = [token.encode("latin-1") for token in given["tokens"]]
    vocabulary = Vocabulary(tokens, given["special"], given["ends"])
    tokenizer = vocabulary.tokenizer()
    specials = frozenset(tokens[i].decode(errors="replace") for i in vocabulary.special)

    def compiled(request: Mapping[str, Any]) -> dict[str, str]:
        source = GrammarSource(**request)
        try:
            text = to_grammar(source, specials)
            work = Work.of(text)
        except RecursionError:
            raise GrammarError("it is nested too deeply") from None
        except ValueError as error:
            raise GrammarError(reason(str(error))) from error
        if work > MOST_WORK:
            raise GrammarError(
                f"too many ways lead to the same rules: {work} items to look at for one token, of at most {MOST_WORK}"
            )
        Grammar(tokenizer, text, most_items(source)).check()
        return {"grammar": text}

    return compiled


if __name__ == "__main__":
    serve(prepare, GrammarError)
