"""Errors of grammars that cannot constrain an answer."""


class GrammarError(ValueError):
    """The grammar is wrong, has no answer, uses what is not supported, or reached a limit; the message says which."""


class GrammarProcessLost(RuntimeError):
    """The process that tries grammars ended without a reason of its own, such as by the kernel's OOM killer."""

    def __init__(self) -> None:
        super().__init__("The process that tries grammars was lost; a new one starts. Please send it again.")


class GrammarQueueFull(RuntimeError):
    """The queue of grammars to compile is full; try again later or elsewhere."""

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"The engine is busy: {waiting} grammars wait to be compiled, which is as many as it queues. "
            "Please try again later or on a different instance."
        )
