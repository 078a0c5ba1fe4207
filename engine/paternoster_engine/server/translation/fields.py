"""Extensions that chat completions, responses and messages have under the same names."""

from collections.abc import Mapping
from copy import copy
from typing import Any

from pydantic import create_model

from paternoster_engine.server.openai.fields.body import Body
from paternoster_engine.server.openai.requests import ChatCompletionRequest

PASSED_ON = (
    "temperature", "top_p", "top_k", "seed", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "min_tokens", "stop_token_ids", "ignore_eos", "structured_outputs",
    "chat_template_kwargs", "priority", "cache_salt", "deadline_ms",
)  # fmt: skip


class _Passing(Body):
    def passed_on(self) -> Mapping[str, Any]:
        """Those of :data:`PASSED_ON` that are given."""
        return {name: getattr(self, name) for name in PASSED_ON if name in self.model_fields_set}


_fields = ChatCompletionRequest.model_fields
PassedFields = create_model(
    "PassedFields", __base__=_Passing, **{name: (_fields[name].annotation, copy(_fields[name])) for name in PASSED_ON}
)
"""With the bounds that they have there."""
