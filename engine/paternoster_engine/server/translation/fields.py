"""Extensions that chat completions, responses and messages have under the same names."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from paternoster_engine.server.openai.fields import Body

PassedOn = Annotated[Any, Field(description="as in chat completions")]


class PassedFields(Body):
    """Judged where the chat request that they are passed on to is."""

    seed: PassedOn = None
    min_p: PassedOn = None
    presence_penalty: PassedOn = None
    frequency_penalty: PassedOn = None
    repetition_penalty: PassedOn = None
    chat_template_kwargs: PassedOn = None
    priority: PassedOn = None
    cache_salt: PassedOn = None
    deadline_ms: PassedOn = None

    def passed_on(self) -> Mapping[str, Any]:
        """Those that are given."""
        given = {name: getattr(self, name) for name in PassedFields.model_fields}
        return {name: value for name, value in given.items() if value is not None}
