"""The text of an exception, for logs and messages."""


def error_text(error: BaseException) -> str:
    """Return what ``error`` says, or its type's name where it says nothing, as time-outs do."""
    return str(error) or type(error).__name__
