"""Answers that browsers give to pages of other origins, where those are allowed (Fetch, 3.3)."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware

EXPOSED_HEADERS = (
    "X-Request-Id", "request-id", "X-Paternoster-Ignored", "X-Paternoster-Tool-Template", "Retry-After",
    "x-should-retry",
)  # fmt: skip
"""Headers of an answer that a page may read."""
METHODS = ("GET", "HEAD", "POST")


def allow_origins(app: Starlette, origins: Sequence[str]) -> None:
    """Let pages of ``origins`` call ``app``; after all other middleware, as browsers ask beforehand without a key.

    These APIs use no cookies: a caller has a key, or needs none.
    """
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
