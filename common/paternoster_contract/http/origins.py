"""Web pages that may call an API from their visitors' browsers (CORS), by origin."""

import re

_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://[A-Za-z0-9.-]+(:[0-9]{1,5})?|[a-z][a-z0-9+.-]*://\[[0-9a-fA-F:]+\](:[0-9]{1,5})?"
)
EVERY = "*"


def parse_origins(text: str) -> tuple[str, ...]:
    """``https://a.example,http://localhost:3000``, or ``*`` for every page, taken apart; raises ``ValueError``."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for origin in found:
        if origin != EVERY and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"has the origin {origin[:100]!r}: must be * or scheme://host[:port] without a path, such as "
                "https://chat.example.org"
            )
    return found


def check_origin(text: str) -> str:
    """``text`` as it is; raises ``ValueError`` as :func:`parse_origins`."""
    parse_origins(text)
    return text
