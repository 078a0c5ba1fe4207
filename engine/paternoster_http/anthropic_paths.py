"""Which paths are of Anthropic's API."""

PATH = "/v1/messages"


def is_anthropic(path: str) -> bool:
    """Whether clients of Anthropic's API call ``path``."""
    return path == PATH or path.startswith(f"{PATH}/")
