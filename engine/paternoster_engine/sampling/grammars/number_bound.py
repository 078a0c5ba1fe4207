"""Bound of the digits of numbers in JSON, without which a model that repeats a digit writes it until ``max_tokens``."""

import re
from collections.abc import Callable, Sequence

MOST_DIGITS = 40
"""Digits before a number's point, and behind it. 128-bit integers and addresses have 39 digits, SQL's decimals 38 and
decimal128 34; a double is exact with 17, behind at most six zeros where a writer uses no exponent.
"""
MOST_EXPONENT = 3
"""Digits of an exponent: those of doubles, beyond which RFC 8259 expects no reader to go, end at 308."""
DIGITS = b"0123456789"
NUMBER_CHARACTERS = DIGITS + b".eE+-"
NUMBER_END = re.compile(rb"[0-9.eE+-]+\Z")
NUMBER = re.compile(rb"-?[0-9]+(?:\.(?P<fraction>[0-9]+))?(?:[eE][+-]?(?P<exponent>[0-9]+))?")
"""A number of JSON that ends in a digit."""
LONG_NUMBER = re.compile(rf"[0-9]{{{MOST_DIGITS + 1},}}")


class NumberBound:
    """Which tokens would make a number too long, for one vocabulary."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        """``tokens``: the bytes of each token; some milliseconds for 49,152."""
        self._tokens = tokens
        leading = [
            (token, len(text) - len(text.lstrip(DIGITS))) for token, text in enumerate(tokens) if text[:1].isdigit()
        ]
        self._longest = max((count for _, count in leading), default=0)
        """Most digits with which a token begins."""
        self._beginning = [0] * (self._longest + 1)
        """Tokens that begin with more digits, for each count: a number whose bit ``t`` stands for token ``t``."""
        for least in range(self._longest):
            mask = bytearray(len(tokens) // 8 + 1)
            for token, count in leading:
                if count > least:
                    mask[token // 8] |= 1 << token % 8
            self._beginning[least] = int.from_bytes(mask, "little")
        self._quotes = sum(1 << token for token, text in enumerate(tokens) if text == b'"')
        self._single = [token for token, count in leading if len(tokens[token]) == 1]

    def bound_mask(self, mask: bytes, output: Sequence[int], most: int, mask_behind: Callable[[int], bytes]) -> bytes:
        """``mask`` without tokens that continue a number beyond ``most`` digits, where it may end before.

        Where it may not end yet, only digits behind which it may are left, if there are any. In a string a quotation
        mark may come next, or the text before the digits begins no number. ``output``: tokens that the grammar has
        taken in. ``mask_behind``: what is allowed behind a further token.
        """
        left = self._count_left(output, most)
        if left is None or left >= self._longest:
            return mask
        allowed = int.from_bytes(mask, "little")
        if allowed & self._quotes:
            return mask
        bounded = allowed & ~self._beginning[max(0, left)]
        if not bounded:
            digits = [token for token in self._single if allowed >> token & 1]
            bounded = sum(1 << token for token in digits if self._may_end(mask_behind(token)))
        return bounded.to_bytes(len(mask), "little") if bounded else mask

    def _may_end(self, mask: bytes) -> bool:
        """Whether something else than digits may come next."""
        return int.from_bytes(mask, "little") & ~self._beginning[0] != 0

    def _count_left(self, output: Sequence[int], most: int) -> int | None:
        """How many digits may come next; None where the output ends in no number, or far from its bound."""
        if not output or not self._tokens[output[-1]][-1:].isdigit():
            return None
        text = b""
        for token in reversed(output):
            text = self._tokens[token] + text
            # What begins before a text that is longer than any number does not matter: it is beyond the bound.
            if self._tokens[token].strip(NUMBER_CHARACTERS) or len(text) > 2 * most + len("-.e-") + MOST_EXPONENT:
                break
        if len(text) + self._longest <= most and b"e" not in text and b"E" not in text:
            # Most numbers are far from the bound.
            return None
        found = NUMBER_END.search(text)
        number = None if found is None else NUMBER.fullmatch(found[0])
        if found is None or number is None or _is_of_text(text[: found.start()][-1:]):
            return None
        if number["exponent"] is not None:
            return MOST_EXPONENT - len(number["exponent"])
        return most - len(number["fraction"] or number[0].lstrip(b"-"))


def _is_of_text(before: bytes) -> bool:
    """Whether no number begins behind the byte ``before``: within a word, or a string."""
    return before.isalnum() or before in (b"_", b'"', b"\\") or before >= b"\x80"


def most_digits(grammar: str) -> int:
    """Most digits of a number in ``grammar``: :data:`MOST_DIGITS`, or those of the longest number that it has."""
    return max(map(len, LONG_NUMBER.findall(grammar)), default=MOST_DIGITS)
