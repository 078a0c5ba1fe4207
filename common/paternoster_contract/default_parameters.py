"""Sampling settings that a model's publisher recommends, as engines report them and ``/v1/models`` shows them."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MOST_TOKENS = 2**31 - 1
MOST_TEMPERATURE = MOST_PENALTY = 2.0
LEAST_PENALTY = 1e-5


class DefaultParameters(BaseModel):
    """Values of requests that leave a field out, by the field's name; None where the API's own default holds.

    The bounds are those of requests: a default that no request could ask for would be a trap.
    """

    model_config = ConfigDict(allow_inf_nan=False, frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=MOST_TEMPERATURE)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=MOST_TOKENS)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, ge=LEAST_PENALTY, le=MOST_PENALTY)
    max_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)

    def list_set_values(self) -> dict[str, Any]:
        """Parameters that are set, by name."""
        return self.model_dump(exclude_none=True)

    @classmethod
    def find_common(cls, reported: Iterable["DefaultParameters | None"]) -> "DefaultParameters | None":
        """The values on which all engines agree that report any; None where none does."""
        values = [each.list_set_values() for each in reported if each is not None]
        if not values:
            return None
        return cls(**{name: value for name, value in values[0].items() if all(e.get(name) == value for e in values)})
