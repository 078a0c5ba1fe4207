"""The text of an exception, for logs and messages."""


def error_text(error: BaseException) -> str:
    """Return the message of ``error``, or the name of its type where the message is empty, as that of time-outs is."""
    return str(error) or type(error).__name__
