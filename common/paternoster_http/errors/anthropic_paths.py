"""Paths of Anthropic's API."""

PATH = "/v1/messages"


def is_anthropic(path: str) -> bool:
    """Whether ``path`` belongs to Anthropic's API."""
    return path == PATH or path.startswith(f"{PATH}/")
