"""The default model's tokenizer with the control tokens of other families."""

from functools import cache

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from paternoster_engine.model.tokenizer import Tokenizer


@cache
def with_special(tokenizer: Tokenizer, *special: str, template: str) -> Tokenizer:
    """The tokenizer with more control tokens, and another template."""
    backend = Backend.from_str(tokenizer._backend.to_str())
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    return Tokenizer(backend, tokenizer.eos_token_ids, template, tokenizer.special_names)
