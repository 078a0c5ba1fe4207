"""Answers of any tokens that a grammar allows, brought to an end."""

import random

import numpy as np

from paternoster_engine.sampling.grammars.grammar import Grammar

BYTES = 256
END = 261
"""The byte vocabulary's token that ends an answer."""
MOST = 400
CLOSING = [ord(character) for character in '"}]0a-:,']


def sampled(grammar: Grammar, seed: int) -> str | None:
    """Sample from a vocabulary of bytes; None if it comes to no end."""
    pick, matcher = random.Random(seed), grammar.start_matcher()
    answer = bytearray()
    while len(answer) < MOST:
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        assert not matcher.is_error(), matcher.get_error()
        going = [token for token in allowed if token < BYTES]
        if END in allowed and (not going or pick.random() < 0.5):
            return answer.decode()
        few = [token for token in going if token in CLOSING]
        answer.append(pick.choice(few if few and pick.random() < 0.8 else going))
        assert matcher.consume_token(answer[-1]), matcher.get_error()
    return None
