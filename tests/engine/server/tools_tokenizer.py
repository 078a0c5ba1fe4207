"""The default model's tokenizer with the control tokens of other families, and what grammars make of a tokenizer.

Each is made once for the tests of a file: of 49,152 tokens it takes a third of a second.
"""

from functools import lru_cache

from llguidance import LLTokenizer
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary

FAMILIES_OF_FILE = 8
"""The most that a file of tests has."""


@lru_cache(FAMILIES_OF_FILE)
def with_special(tokenizer: Tokenizer, *special: str, template: str) -> Tokenizer:
    """The tokenizer with more control tokens, and another template."""
    backend = Backend.from_str(tokenizer._backend.to_str())
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    return Tokenizer(backend, tokenizer.eos_token_ids, template, tokenizer.special_names)


@lru_cache(FAMILIES_OF_FILE)
def vocabulary_of(tokenizer: Tokenizer) -> LLTokenizer:
    """The tokens as grammars see them."""
    return Vocabulary.from_tokenizer(tokenizer).build_tokenizer(tokenizer.encode)
