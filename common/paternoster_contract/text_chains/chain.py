"""The chain of digests over a canonical text: each depends on all of the text before it. Pure.

A piece ends at each multiple of 128 bytes up to 4 KiB, of 512 up to 32 KiB, of 2,048 after that, and behind the
instructions; the rest of a text that fills no piece has none. 100 kB are 120 pieces, 400 kB 267.

The digest is SHA-256, for which server processors have instructions: Arm's since Neoverse N1, AMD's since Zen, Intel's
since Ice Lake (2021). 400 kB take 0.54 ms of an Intel Xeon (AVX-512 without AMX), and BLAKE2b 0.78; without the
instructions, as on Intel's Skylake and Cascade Lake, 1.28. No digest that is faster everywhere would do: who finds two
texts with one digest finds out what other tenants asked.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import sha256
from itertools import accumulate, chain, islice, repeat
from typing import NamedTuple

from paternoster_contract.text_chains.canonical_text import CanonicalText

FINE, MEDIUM, COARSE = 128, 512, 2048
"""Bytes of a piece, by where it begins: what is found ends at one, so none is long beside the text before it."""
FINE_UP_TO, MEDIUM_UP_TO = 2**12, 2**15
MAX_PIECES = 1024
"""Limit for one text, which is 1.9 MB; what comes after has no pieces."""
DIGEST_BYTES = 8


class Piece(NamedTuple):
    """One link of a chain."""

    digest: int
    """Digest of the text up to ``end``: an unsigned number of eight bytes."""
    end: int
    """Bytes of :meth:`CanonicalText.encode` that it stands for, from the first on."""


def chain_scope(model: str, tenant: str = "", salt: str = "", adapter: str = "") -> bytes:
    """What a chain begins with: texts of different scopes have no digest in common.

    ``tenant`` is empty where the engine shares its cache between tenants.
    """
    return sha256(json.dumps((model, adapter, tenant, salt)).encode()).digest()


def text_chain(scope: bytes, text: CanonicalText) -> list[Piece]:
    """The pieces of ``text``, in order."""
    return ChainHash(scope, text).extend(text.encode())


class ChainHash:
    """A chain that can be continued, as by the answer to its text."""

    def __init__(self, scope: bytes, text: CanonicalText) -> None:
        """Begin the chain of ``text``, of which nothing is hashed yet."""
        settings = text.settings
        self._hash = sha256(scope + len(settings).to_bytes(8, "big") + settings)
        self._ends = _piece_ends(text.head_bytes)
        self._end = next(self._ends, None)
        self._length = 0

    def extend(self, data: bytes) -> list[Piece]:
        """Append ``data``; returns the pieces that it completes."""
        pieces: list[Piece] = []
        view, first, start, digest = memoryview(data), self._length, 0, self._hash
        from_bytes, end = int.from_bytes, self._end
        stop = first + len(data)
        while end is not None and end <= stop:
            digest.update(view[start : end - first])
            pieces.append(Piece(from_bytes(digest.copy().digest()[:DIGEST_BYTES], "big"), end))
            start = end - first
            end = next(self._ends, None)
        if end is not None:
            digest.update(view[start:])
        self._length, self._end = stop, end
        return pieces


def _piece_length(start: int) -> int:
    return FINE if start < FINE_UP_TO else MEDIUM if start < MEDIUM_UP_TO else COARSE


_ENDS = tuple(islice(accumulate(repeat(0), lambda end, _: end + _piece_length(end), initial=FINE), MAX_PIECES))


def _piece_ends(head: int | None) -> Iterator[int]:
    """:data:`_ENDS`, and ``head`` among them."""
    at = MAX_PIECES if head is None else bisect_left(_ENDS, head)
    if head is None or at == MAX_PIECES or _ENDS[at] == head:
        return iter(_ENDS)
    return chain(islice(_ENDS, at), (head,), islice(_ENDS, at, MAX_PIECES - 1))
