"""Keys by which the prefix cache finds blocks: a chain of digests over tokens, begun by the scope of the request."""

from array import array
from hashlib import blake2b


def chain_key(parent: bytes, tokens: list[int]) -> bytes:
    """Key of a full row: its tokens and all before them (hash chain, as in vLLM's prefix caching).

    A 128-bit digest and not Python's ``hash``: equal keys share memory across users, so a collision must not be
    something that a prompt can be built for.
    """
    return blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()
