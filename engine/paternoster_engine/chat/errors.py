"""The errors of a conversation that gets no prompt."""


class ChatTemplateError(ValueError):
    """The model has no chat template, or its template refused these messages, failed on them, or reached a limit."""


class RendererLost(RuntimeError):
    """The process that renders ended without a reason of its own, such as by the kernel's OOM killer."""

    def __init__(self) -> None:
        super().__init__("The process that renders chat templates was lost; a new one starts. Please send it again.")
