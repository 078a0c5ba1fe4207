"""Detect whether a chat template shows tools, calls and results, by rendering short conversations."""

from typing import Any, NamedTuple

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.renderer import Renderer
from paternoster_engine.chat.skeleton import TOOL, skeleton_of

_ID = "call00000"
"""Nine letters and digits: Mistral's templates take no others."""
_USER: dict[str, Any] = {"role": "user", "content": "x"}
_CALL = {"id": _ID, "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
_CALLED: list[dict[str, Any]] = [
    _USER,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "name": "f", "content": "y", "tool_call_id": _ID},
]
_ANSWERED = [*_CALLED, {"role": "assistant", "content": "z"}, _USER]


class TemplateSupport(NamedTuple):
    """What a template shows."""

    tools: bool
    """Tools, and with them earlier calls and their results."""
    calls: bool
    """Earlier calls and their results in a request without tools."""


def detect_template_support(renderer: Renderer) -> TemplateSupport:
    """Render short conversations with tools and calls. Raises :class:`RendererLost`."""
    tools = {TOOL: [{"type": "function", "function": {"name": "f"}}]}
    calls = _shows_texts(renderer, _CALLED, {}) or _shows_texts(renderer, _ANSWERED, {})
    reads_tools = _shows_texts(renderer, [_USER], tools)
    with_calls = reads_tools and (
        _shows_texts(renderer, _CALLED, tools, tool=False) or _shows_texts(renderer, _ANSWERED, tools)
    )
    return TemplateSupport(with_calls, calls)


def _shows_texts(
    renderer: Renderer, messages: list[dict[str, Any]], variables: dict[str, Any], *, tool: bool = True
) -> bool:
    """Whether the prompt has all texts; ``tool``: also the tools, which some templates show at the last user only."""
    skeleton = skeleton_of(messages, variables)
    try:
        found = renderer.fit_template(skeleton, add_generation_prompt=True)
    except ChatTemplateError:
        return False
    needed = skeleton.places if tool else skeleton.required
    return found.error is None and found.shown.issuperset(needed)
