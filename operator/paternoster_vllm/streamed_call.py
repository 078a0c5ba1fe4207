"""Which calls another vLLM can continue from their tokens, and the call that asks it for the rest; pure.

A body with any field that is not listed here is none of them: vLLM answers it untouched.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
COPIED = frozenset(
    {
        "model", "seed", "stop", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "logit_bias",
        "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
        "spaces_between_special_tokens", "allowed_token_ids", "priority", "cache_salt", "session_id",
        "stream_interval",
    }
)  # fmt: skip
"""Fields that mean the same for the rest of an answer. Penalties of presence and frequency do not: they count the
tokens of the answer, and those so far are a part of the prompt then."""
OF_PROMPT = frozenset(
    {
        "messages", "prompt", "user", "metadata", "store", "request_id", "truncate_prompt_tokens", "truncation_side",
        "add_special_tokens", "add_generation_prompt", "continue_final_message", "documents", "chat_template",
        "chat_template_kwargs", "reasoning_effort", "include_reasoning", "parallel_tool_calls", "return_prompt_text",
        "stream", "stream_options", "max_tokens", "max_completion_tokens", "return_token_ids",
    }
)  # fmt: skip
"""Fields that decide the prompt or the frames, or nothing; limits of tokens are reduced."""
WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "tools": ([],),
    "tool_choice": ("none",),
    "response_format": ({"type": "text"},),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "bad_words": ([],),
}
"""Further fields, and the values with which they change nothing."""
COMPLETIONS_DEFAULT_TOKENS = 16
"""``max_tokens`` of ``/v1/completions`` where it is not set, in OpenAI's API as in vLLM."""


@dataclass(frozen=True, slots=True)
class StreamedCall:
    """A call whose stream another vLLM can continue."""

    is_chat: bool
    document: Mapping[str, Any]
    """The body."""
    max_tokens: int | None
    min_tokens: int
    includes_usage: bool
    continuous_usage: bool
    wants_tokens: bool
    """Whether the client asked for ``token_ids`` itself."""

    def build_first_body(self) -> bytes:
        """The body with which vLLM states the tokens of each frame."""
        return json.dumps({**self.document, "return_token_ids": True}).encode()

    def build_rest_body(self, prompt: tuple[int, ...], tokens: tuple[int, ...], limit: int) -> bytes:
        """The body of ``/v1/completions`` for what follows ``tokens``, ``limit`` tokens at most.

        Stop strings are left out: they may begin in the text of ``tokens``, and the caller looks for them.
        """
        copied = {name: value for name, value in self.document.items() if name in COPIED and name != "stop"}
        rest = {
            **copied, "prompt": [*prompt, *tokens], "max_tokens": limit, "stream": True, "return_token_ids": True,
            "min_tokens": min(limit, max(0, self.min_tokens - len(tokens))),
        }  # fmt: skip
        return json.dumps(rest).encode()


def read_call(path: str, body: bytes, *, forces_usage: bool = False) -> StreamedCall | None:
    """The call of ``body``, None where its answer is no stream or cannot be continued.

    ``forces_usage``: the server counts in each frame, whatever the call says.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("stream") is not True:
        return None
    fields = {name: value for name, value in document.items() if value is not None}
    is_chat = path == CHAT
    if not all(_has_no_effect(name, value) for name, value in fields.items() if name not in COPIED | OF_PROMPT):
        return None
    if not (_is_text_chat(fields.get("messages")) if is_chat else _is_one_prompt(fields.get("prompt"))):
        return None
    options, min_tokens = fields.get("stream_options", {}), fields.get("min_tokens", 0)
    most = fields.get("max_tokens")
    if is_chat:
        most = fields.get("max_completion_tokens", most)
    elif "max_tokens" not in document:
        most = COMPLETIONS_DEFAULT_TOKENS
    counts = all(type(value) is int and value >= 0 for value in (min_tokens, 0 if most is None else most))
    if not (counts and isinstance(options, dict) and most != 0):
        return None
    includes_usage = forces_usage or options.get("include_usage") is True
    continuous = forces_usage or (includes_usage and options.get("continuous_usage_stats") is True)
    wants_tokens = fields.get("return_token_ids") is True
    return StreamedCall(is_chat, document, most, min_tokens, includes_usage, continuous, wants_tokens)


def _has_no_effect(name: str, value: Any) -> bool:
    allowed = WITHOUT_EFFECT.get(name, ())
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed)


def _is_text_chat(messages: Any) -> bool:
    """Whether ``messages`` have text alone: other parts are not in the tokens of the prompt."""
    if not isinstance(messages, list):
        return False
    contents = [message.get("content") if isinstance(message, dict) else 0 for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return all(content is None or isinstance(content, (str, list)) for content in contents) and all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text") for part in parts
    )


def _is_one_prompt(prompt: Any) -> bool:
    return isinstance(prompt, str) or (isinstance(prompt, list) and all(type(token) is int for token in prompt))
