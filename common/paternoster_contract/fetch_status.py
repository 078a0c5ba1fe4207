"""One line of JSON that says how far a download is, or how it ended: written by ``pull``, read by the operator."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

LONGEST_MESSAGE = 2048
"""Bytes of a reason's words: Kubernetes keeps 4096 of a termination message, and JSON may double some."""
LONGEST_PATH = 4096
"""Characters: Linux's PATH_MAX."""
MOST_BYTES = 2**53
"""Largest number of bytes that is reported, as for a counter."""
_REASON = r"^[A-Z][A-Za-z]{0,63}$"
"""What a condition may have as its reason."""


class FetchStatus(BaseModel):
    """The document that a fetch publishes while it runs and when it ends.

    ``{"state": "downloading", "done": 1, "total": 2, "rate": 3.0}``, with ``waiting`` while another process fetches the
    same model and ``listing`` before files are listed; ``{"state": "ready", "path": ..., "revision": ...}``; or
    ``{"state": "failed", "reason": "GatedModel", "message": ..., "transient": false}``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: Literal["listing", "waiting", "downloading", "ready", "failed"]
    done: int = Field(default=0, ge=0, le=MOST_BYTES)
    """Bytes on disk."""
    total: int = Field(default=0, ge=0, le=MOST_BYTES)
    rate: float = Field(default=0.0, ge=0, le=MOST_BYTES, allow_inf_nan=False)
    """Bytes a second."""
    path: str = Field(default="", max_length=LONGEST_PATH)
    revision: str = Field(default="", max_length=LONGEST_PATH)
    reason: str | None = Field(default=None, pattern=_REASON)
    message: str = Field(default="", max_length=LONGEST_MESSAGE)
    transient: bool = False
    """Whether another try may succeed with nothing changed."""

    def to_json_line(self) -> str:
        """The reported fields as JSON on one line."""
        return self.model_dump_json(exclude_unset=True)

    @classmethod
    def read(cls, line: str) -> "FetchStatus | None":
        """None for what is no such line."""
        try:
            return cls.model_validate_json(line)
        except ValidationError:
            return None


def clip_message(message: str) -> str:
    """Cut ``message`` to the length that fits, with no character cut in two."""
    return message.encode(errors="replace")[:LONGEST_MESSAGE].decode(errors="ignore")
