"""How many tokens an answer has, by its bytes alone."""

import re

MAX_TAIL = 4096
"""Bytes at the end of an answer in which its usage is searched."""
_EVENT_END = b"\n\n"
_USAGE = re.compile(rb'"(?:completion|output)_tokens"[ \t\n\r]*:[ \t\n\r]*([0-9]{1,7})(?![0-9.eE])')


class OutputTokens:
    """Of a stream each event counts as a token; of another answer those count that its usage states."""

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._tail = b""

    def feed(self, data: bytes) -> int:
        """Tokens to charge now that ``data`` has come."""
        if self._is_stream:
            return data.count(_EVENT_END)
        self._tail = (self._tail + data)[-MAX_TAIL:]
        return 0

    def count_final(self) -> int:
        """Tokens to charge at the end of the answer, once."""
        usage = _USAGE.search(self._tail)
        self._tail = b""
        return 0 if usage is None else int(usage[1])
