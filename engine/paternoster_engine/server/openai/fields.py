"""What the fields of a request body may be: features that are refused, and values that come in several forms."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

MAX_PROMPTS = 128
MAX_MESSAGES = 2048
"""Messages of a conversation, and parts of a message's content; OpenAI's limit of messages."""
MAX_CHOICES = 128
"""OpenAI's limit of ``n``."""
MAX_LOGPROBS = 20
"""OpenAI's limit of ``top_logprobs``."""


def only(*allowed: Any) -> AfterValidator:
    """Marks a field of a feature that the engine does not have: just the values that do not ask for it."""

    def check(value: Any) -> Any:
        if not any(type(value) is type(other) and value == other for other in allowed):
            text = " or ".join(json.dumps(other) for other in (*allowed, None))
            raise ValueError(f"not supported by this engine: leave it out or send {text}")
        return value

    return AfterValidator(check)


def whole_characters(text: str) -> str:
    """Raises ``ValueError`` for a lone surrogate, which JSON can spell and no encoding of text has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise ValueError(f"has the lone surrogate {lone!r} at {error.start}: send whole characters") from error
    return text


Text = Annotated[str, AfterValidator(whole_characters)]


def _check_prompts(value: Any) -> list[str | list[int]]:
    """The four forms of ``prompt`` made into one: a list whose items are texts or lists of token ids."""
    one = isinstance(value, str) or (isinstance(value, list) and any(type(item) is int for item in value))
    prompts = [value] if one else value
    if not isinstance(prompts, list) or not 1 <= len(prompts) <= MAX_PROMPTS:
        raise ValueError(f"must be a text, a list of token ids, or a list of 1 to {MAX_PROMPTS} of either")
    for prompt in prompts:
        ids = isinstance(prompt, list) and all(type(item) is int and item >= 0 for item in prompt)
        if not prompt or not (isinstance(prompt, str) or ids):
            raise ValueError("each prompt must be a text or a list of token ids, and not empty")
        if isinstance(prompt, str):
            whole_characters(prompt)
    return prompts


Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_check_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]
StopStrings = Annotated[
    list[Annotated[Text, Field(min_length=1)]],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]),
    Field(max_length=16),
]
TokenIds = list[Annotated[int, Field(ge=0)]]


class Body(BaseModel):
    """A request body; fields that are null take their defaults."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None or name not in cls.model_fields}
