"""Masks over the vocabulary: vLLM's ``allowed_token_ids`` and ``bad_words``, and tokens that end a request."""

from collections.abc import Callable, Iterable, Sequence

from paternoster_engine.core.matching import SamplerRow


def mask_of(token_ids: Iterable[int], vocab_size: int) -> bytes:
    """Return a mask of ``vocab_size`` bits that allows ``token_ids``, all of which are below ``vocab_size``."""
    mask = bytearray(-(-vocab_size // 8))
    for token in token_ids:
        mask[token // 8] |= 1 << token % 8
    return bytes(mask)


def words_as_tokens(words: Sequence[str], encode: Callable[[str], Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Tokenize each word as vLLM does: as the beginning of a text, and after a space.

    The second is left out where its first token is the same or it has another length. ``encode``: tokenizes a text
    without control tokens around it.
    """
    tokens: list[tuple[int, ...]] = []
    for word in words:
        first, behind = tuple(encode(word.lstrip())), tuple(encode(" " + word.lstrip()))
        tokens.append(first)
        if first and behind and behind[0] != first[0] and len(behind) == len(first):
            tokens.append(behind)
    return tuple(filter(None, tokens))


def within_allowed(mask: bytes, row: SamplerRow) -> bytes | None:
    """Remove from ``mask`` (empty: every token) what the row's settings forbid; None where no token is left."""
    params, output = row.params, row.output
    allowed = bytearray(params.allowed_tokens)
    if mask:
        size = min(len(mask), len(allowed))
        both = int.from_bytes(mask[:size], "little") & int.from_bytes(allowed[:size], "little")
        allowed = bytearray(both.to_bytes(size, "little"))
    for *before, last in params.bad_words:
        if last // 8 < len(allowed) and (not before or output[-len(before) :] == before):
            allowed[last // 8] &= ~(1 << last % 8) & 0xFF
    if not any(allowed):
        return None
    left = bytes(allowed)
    return without_ends(left, row) if len(output) < params.min_tokens else left


def without_ends(mask: bytes, request: SamplerRow) -> bytes:
    """``mask`` without tokens that end the request, unless no other is left."""
    ends = set(request.eos_token_ids)
    if len(request.output) < request.params.min_tokens:
        ends.update(request.params.stop_token_ids)
    others = bytearray(mask)
    # A model may have more rows than its tokenizer has tokens, which the mask is of.
    for token in (token for token in ends if token // 8 < len(others)):
        others[token // 8] &= ~(1 << token % 8) & 0xFF
    return bytes(others) if any(others) else mask
