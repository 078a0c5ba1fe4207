"""The ``completion_window`` of a batch: the time in which its lines may be answered. Pure."""

import re

SECONDS = {"m": 60, "h": 3600, "d": 86_400}
MIN_SECONDS, MAX_SECONDS = 15 * 60, 30 * 86_400
_WINDOW = re.compile(r"([1-9][0-9]{0,5})([mhd])")


def parse_window(text: str) -> int:
    """The seconds of a window such as ``24h``; raises ``ValueError``."""
    match = _WINDOW.fullmatch(text)
    seconds = int(match[1]) * SECONDS[match[2]] if match else 0
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise ValueError(f"{text[:64]!r}: must be minutes, hours or days such as 24h, from 15m to 30d")
    return seconds
