"""Errors that end a request, with the messages that clients get; ``error_responses`` has their statuses."""

MAX_SHOWN = 200
"""Most characters of a refused value, or of a field's path, shown in a response."""


class UnknownModel(LookupError):
    def __init__(self, model: str) -> None:
        super().__init__(f"The model `{model[:MAX_SHOWN]}` does not exist.")


class AdapterUnavailable(RuntimeError):
    """An adapter that was evicted cannot be read again."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The adapter `{name[:MAX_SHOWN]}` cannot be used: {why}")


class WrongTask(ValueError):
    """The model does not do what the route does: it embeds or generates only."""


class InvalidValue(ValueError):
    """A value that only the running engine can judge; ``field`` is its name in the body.

    ``other``: another field that ``message`` names.
    """

    def __init__(self, field: str, message: str, *, other: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.other = other


class InvalidAdapter(InvalidValue):
    """An adapter that cannot be loaded."""


class Loading(RuntimeError):
    def __init__(self) -> None:
        super().__init__("The model is still being loaded. Please try again later or on a different instance.")


class Draining(RuntimeError):
    def __init__(self) -> None:
        super().__init__("The engine is draining and takes no new requests. Please try again on a different instance.")


class Ending(RuntimeError):
    def __init__(self) -> None:
        super().__init__("The engine drains because its process ends: that cannot be undone.")


class OtherNumerics(RuntimeError):
    """A stream is to go on that began at an engine which computes other numbers."""

    def __init__(self, theirs: str, ours: str) -> None:
        super().__init__(f"The stream began at an engine with fingerprint {theirs}: this one has {ours}.")


class HandOverRequired(RuntimeError):
    """Another engine is to go on with a call that has got no byte yet; a gateway reads it, no client."""

    def __init__(self, numerics: str, journal: bytes, *, failed: bool = False) -> None:
        """``failed``: a step failed that computed the request, which may be the cause."""
        super().__init__("Another engine goes on with this request.")
        self.failed = failed
        self.numerics = numerics
        self.journal = journal


class ClientGone(ConnectionError):
    """The client closed its connection before the response began."""


class StepFailed(RuntimeError):
    """The model raised while it computed a request."""

    def __init__(self) -> None:
        super().__init__("The engine failed while it computed this request; its log says why.")


class CorruptedOutput(RuntimeError):
    """The model gave NaN, or infinite numbers, for a request."""

    def __init__(self) -> None:
        super().__init__(
            "The model gave NaN or infinite numbers for this request, which no answer can be made of. Other requests "
            "go on. Its weights, its dtype or this prompt's tokens may be the cause."
        )


class NothingAllowed(RuntimeError):
    """What a request allows leaves no token that may come next."""


class GrammarTooComplex(RuntimeError):
    """What a request must be reached a limit after some of its tokens."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"The grammar of the answer cannot be followed any further: {fault}")


class EngineEnding(RuntimeError):
    """A request was cut off because the engine ends."""

    def __init__(self) -> None:
        super().__init__("The engine is ending and this request was not finished in time. Please send it again.")


class DeadlineExceeded(TimeoutError):
    """A request was not computed in time and is given up."""

    def __init__(self) -> None:
        super().__init__("The deadline passed before the request could be computed; no answer was begun or it was cut.")


class TextQueueFull(RuntimeError):
    """Refusal while the most text waits to be tokenized; try again later or elsewhere."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"The engine is busy: with these {size} bytes more text would wait to be tokenized than it takes at once. "
            "Please try again later or on a different instance."
        )
