"""How much longer a SentencePiece normalizer may make a text, from its compiled map (``Precompiled``). Pure.

The map is a double array of darts-clone (https://github.com/s-yata/darts-clone), whose units of 32 bits are nodes, and
after it the texts that matched prefixes become, each with a zero byte behind it.
"""

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

MOST_BYTES = 2**20
"""SentencePiece's own maps have 250 kB."""
DEEPEST = 64
"""Bytes of a prefix: those of Unicode's forms have at most 18."""


class CharsmapError(Exception):
    """It is no such map; the text says why."""


def charsmap_growth(compiled: bytes, *, folded: bool) -> float:
    """Return the most bytes that one byte becomes, at least 1.

    ``folded``: every text comes in Unicode's form NFKD, so that only prefixes in it count. Raises
    :class:`CharsmapError`.
    """
    if len(compiled) > MOST_BYTES:
        raise CharsmapError(f"it has {len(compiled)} bytes: must be at most {MOST_BYTES}")
    size = int.from_bytes(compiled[:4], "little")
    if size % 4 or not 4 <= size <= len(compiled) - 4:
        raise CharsmapError(f"its array has {size} bytes: must be a multiple of 4 within {len(compiled)}")
    texts = compiled[4 + size :]
    growth = 1.0
    for leaf in _iterate_leaves(np.frombuffer(compiled, "<u4", size // 4, 4)):
        if leaf.text >= len(texts):
            raise CharsmapError(f"it has a text at {leaf.text} of {len(texts)} bytes")
        end = texts.find(b"\0", leaf.text)
        length = (len(texts) if end < 0 else end) - leaf.text
        counts = not folded or leaf.shared or _is_folded(leaf.prefix)
        if counts and length > growth * len(leaf.prefix):
            growth = length / len(leaf.prefix)
    return growth


class _Leaf(NamedTuple):
    prefix: bytes
    """The shortest that leads there."""
    shared: bool
    """Whether others lead there, too."""
    text: int
    """Where what it becomes begins."""


class _Node(NamedTuple):
    number: int
    prefix: bytes
    parent: int


def _iterate_leaves(units: np.ndarray) -> Iterator[_Leaf]:
    """Every place where a prefix ends; raises :class:`CharsmapError`. Nodes that prefixes share are seen once."""
    visits = np.zeros(len(units), np.int32)
    visits[0] = 1
    labels = np.arange(1, 256, dtype=np.int64)
    nodes = [_Node(0, b"", 0)]
    for node in nodes:  # it grows meanwhile: level by level, so that each node is found by its shortest prefix
        children = _children_of(units, node.number) ^ labels
        children = children[children < len(units)]
        found = children[(units[children] & 0x800000FF) == (children ^ _children_of(units, node.number))]
        if len(found) and len(node.prefix) == DEEPEST:
            raise CharsmapError(f"it has a prefix of more than {DEEPEST} bytes")
        for child in found.tolist():
            visits[child] += 1
            if visits[child] == 1:
                byte = child ^ _children_of(units, node.number)
                nodes.append(_Node(child, node.prefix + bytes((byte,)), node.number))
    shared = visits > 1
    for node in nodes[1:]:
        shared[node.number] |= shared[node.parent]
        inner = _children_of(units, node.number)
        if int(units[node.number]) >> 8 & 1 and inner < len(units):
            yield _Leaf(node.prefix, bool(shared[node.number]), int(units[inner]) & 0x7FFFFFFF)


def _children_of(units: np.ndarray, node: int) -> int:
    """Where the children of a node are: each at this number, xor its byte."""
    unit = int(units[node])
    return node ^ (unit >> 10 << ((unit & 0x200) >> 6))


def _is_folded(prefix: bytes) -> bool:
    text = prefix.decode(errors="replace")
    return unicodedata.is_normalized("NFKD", text)
