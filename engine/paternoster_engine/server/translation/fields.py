"""What the requests of both APIs have in common: extensions of chat completions, and objects of several types."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from pydantic import create_model

from paternoster_engine.server.openai.fields.body import Body, Text, ignored_value
from paternoster_engine.server.openai.requests import ChatCompletionRequest

PASSED_ON = (
    "temperature", "top_p", "top_k", "seed", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "min_tokens", "stop_token_ids", "ignore_eos", "structured_outputs",
    "chat_template_kwargs", "priority", "cache_salt", "deadline_ms",
)  # fmt: skip


class _Passing(Body):
    def passed_on(self) -> Mapping[str, Any]:
        """Fields of :data:`PASSED_ON` that are given."""
        return {name: getattr(self, name) for name in PASSED_ON if name in self.model_fields_set}


_fields = ChatCompletionRequest.model_fields
_passed: dict[str, Any] = {name: (_fields[name].annotation, copy(_fields[name])) for name in PASSED_ON}
if TYPE_CHECKING:
    # A class made at run time has no types: these are the fields that are read by name.
    class PassedFields(_Passing):
        temperature: float
        top_p: float
else:
    PassedFields = create_model("PassedFields", __base__=_Passing, **_passed)
    """With the bounds that they have there."""


class TypedBody(Body):
    """An object with a type, such as a tool. Objects of types that are not served are ignored with all their fields."""

    type: Text

    @classmethod
    @abstractmethod
    def serves_type(cls, type: Any) -> bool:
        """Whether objects of this type are read; others are ignored."""

    @property
    def served(self) -> bool:
        return self.serves_type(self.type)

    @classmethod
    def _read(cls, given: dict[str, Any]) -> dict[str, Any]:
        return given if "type" not in given or cls.serves_type(given["type"]) else {"type": given["type"]}

    def _own_ignored(self, given: Mapping[str, Any]) -> Iterator[str]:
        if self.served:
            yield from super()._own_ignored(given)
        else:
            yield ignored_value("type", self.type)
