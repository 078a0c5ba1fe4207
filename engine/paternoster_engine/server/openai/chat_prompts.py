"""From a conversation to the tokens of its prompt, in a form in which the chat template shows all of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Encoding

from paternoster_engine.chat.fitting import TemplateFit
from paternoster_engine.chat.late_system import fold_late_system, has_late_system
from paternoster_engine.chat.marks import CONTROL_MARK, END
from paternoster_engine.chat.skeleton import CALLS, DOCUMENT, NAME, Skeleton, lost_documents, skeleton_of
from paternoster_engine.chat.tool_prompt import has_calls, write_tools
from paternoster_engine.model.tokenizer import Truncation
from paternoster_engine.server.answer_headers import TOOL_TEMPLATE, set_answer_header
from paternoster_engine.server.bodies.reading_shares import charge_reading
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.openai.fields.body import report_ignored
from paternoster_engine.server.openai.fields.template import TemplateFields
from paternoster_engine.server.openai.messages import ChatMessage, for_template, template_order, texts_of
from paternoster_engine.server.text_chains.prompt_text import PromptText

ENDING = 64
"""Characters of a prompt's end that say whether reasoning has begun."""


class _Prompt(NamedTuple):
    encoding: Encoding
    ending: str
    unread: list[str]
    """Fields of which the template shows nothing, and that it may leave out."""


async def encode_chat(
    encoder: PromptEncoder,
    tenant: str,
    messages: Sequence[ChatMessage],
    fields: TemplateFields,
    add_special_tokens: bool = False,
    truncation: Truncation | None = None,
    text: PromptText | None = None,
) -> tuple[Encoding, str]:
    """Tokens of a conversation and the end of its text; ``fields`` have the template's variables besides.

    The pieces of ``text`` are located in them.

    Raises :class:`InvalidValue` for a text that the template does not show in any form, for one that is too long, and
    for a last message that no answer can go on with; :class:`ChatTemplateError` and :class:`RendererLost`.
    """
    others = fields.template_variables()
    source = encoder.tokenizer.tool_use_template if "tools" in others else None
    variables: Mapping[str, Any] = fields.reasoning_variables(source or encoder.tokenizer.chat_template or "") | others
    generates, continues = fields.begins_answer, fields.continue_final_message
    last = messages[-1]
    if continues and (last.role != "assistant" or not last.text or last.tool_calls):
        raise _no_end("the last message must be of role assistant, with a text and without calls of tools")
    with charge_reading():
        prepared = for_template(messages, encoder.template_format.id_for_template)
        texts, has_tools = texts_of(prepared), "tools" in variables
        # Calls without tools, which transformers would lose, are shown by the template that shows them.
        shows_calls = has_tools or (has_calls(prepared) and not encoder.reads.calls)
        by_prompt = encoder.uses_tool_prompt and shows_calls
        other = encoder.tool_use_template if shows_calls and not by_prompt else None
        template = encoder.chat_template if other is None else other
        if not template.reads_developer:
            prepared = [
                message | {"role": "system"} if message["role"] == "developer" else message for message in prepared
            ]
        if by_prompt:
            set_answer_header(TOOL_TEMPLATE, "built-in")
        elif has_tools and not encoder.reads.tools:
            raise InvalidValue("tools", "tools: this model's chat template reads none: leave them out")
        given = [f"{name}{json.dumps(value, ensure_ascii=False)}" for name, value in variables.items()]
        shown = "".join([*texts, *given])
        size = encoder.work.measure_texts("messages", [shown], encoder.max_model_len, cut=truncation is not None)
    longest = encoder.work.longest if truncation is None else encoder.work.most

    def with_tools(
        conversation: list[dict[str, Any]], values: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
        if not by_prompt:
            return conversation, values
        others = {name: value for name, value in values.items() if name != "tools"}
        return write_tools(conversation, values.get("tools")), others

    def prepare_prompt() -> _Prompt:
        folds = has_late_system(prepared) and not template.carries_late_system
        conversation = fold_late_system(prepared) if folds else prepared
        skeleton = skeleton_of(*with_tools(conversation, variables))
        found = template.renderer.fit_template(skeleton, add_generation_prompt=generates)
        _check_shown(skeleton, found, None if by_prompt or folds else messages)
        marked, values = conversation, variables
        if not encoder.parse_special_tokens:
            marker = encoder.tokenizer.marker
            marked, values = (
                marker.mark_messages(marked),
                {name: marker.mark_value(value) for name, value in variables.items()},
            )
        if continues:
            marked = [*marked[:-1], marked[-1] | {"content": marked[-1]["content"] + END}]
        marked, values = with_tools(marked, values)
        marks = json.dumps([marked, values], ensure_ascii=False).count(CONTROL_MARK)
        most = longest + (marks + continues) * len(CONTROL_MARK.encode())
        rendered = template.renderer.render(marked, most, found.steps, add_generation_prompt=generates, **values)
        if found.error is not None:
            _check_texts(marked, rendered)
        if continues:
            rendered, end, _ = rendered.rpartition(END)
            if not end:
                raise _no_end("this model's chat template does not show the last message's rendered")
        encoding = encoder.tokenizer.encode_text(rendered, add_special_tokens, truncation)
        if text is not None:
            text.locate_pieces(rendered.replace(CONTROL_MARK, ""), encoding.ids, encoder.tokenizer)
        ending = rendered[-ENDING:]
        if truncation is not None and len(encoding) >= truncation.most:
            # Of what is left, which may end elsewhere.
            ending = encoder.tokenizer.decode(encoding.ids[-ENDING:], skip_special_tokens=False)[-ENDING:]
        return _Prompt(encoding, ending, _unread_fields(skeleton, found, prepared, rendered))

    prompt = await encoder.work.run(tenant, size, prepare_prompt)
    if prompt.unread:
        report_ignored(*prompt.unread)
    return prompt.encoding, prompt.ending


def _no_end(fault: str) -> InvalidValue:
    return InvalidValue("continue_final_message", f"continue_final_message: {fault}")


def _check_shown(skeleton: Skeleton, found: TemplateFit, messages: Sequence[ChatMessage] | None) -> None:
    """Raises :class:`InvalidValue` for the first message or document of which the prompt would lack a text.

    ``messages``: those of the client; None where they are not those of the skeleton.
    """
    if found.error is not None:
        return
    lost = [marker for marker in skeleton.required if marker not in found.shown]
    for marker in lost:
        field, index = skeleton.places[marker]
        if field == DOCUMENT:
            continue
        role = skeleton.messages[index]["role"]
        name = "messages" if messages is None else f"messages.{template_order(messages)[index]}.{field}"
        what = "calls of tools" if field == CALLS else "the text"
        raise InvalidValue(name, f"{name}: this model's chat template leaves out {what} of this message of role {role}")
    missing = lost_documents(lost, skeleton)
    if missing and len(missing) == len(skeleton.variables[DOCUMENT]):
        raise InvalidValue(DOCUMENT, "documents: this model's chat template reads none: leave them out")
    if missing:
        name = f"{DOCUMENT}.{missing[0]}"
        raise InvalidValue(name, f"{name}: this model's chat template reads none of the fields that it has")


def _check_texts(messages: Sequence[Mapping[str, Any]], prompt: str) -> None:
    """Check texts themselves, where a template refuses their skeleton.

    Of the assistant's a template may cut out what was thought.
    """
    for message in messages:
        text = message["content"].strip()
        spelled = (text, json.dumps(text, ensure_ascii=False)[1:-1])
        if message["role"] != "assistant" and not any(each in prompt for each in spelled):
            raise InvalidValue("messages", "messages: this model's chat template leaves out the text of one of them")


def _unread_fields(
    skeleton: Skeleton, found: TemplateFit, messages: Sequence[Mapping[str, Any]], prompt: str
) -> list[str]:
    """``messages[].name`` where a message's name is not shown.

    A result's name is its function's, which the call before it shows.
    """
    if found.error is not None:
        # The skeleton was refused: the names themselves are looked for.
        names = [message["name"] for message in messages if "name" in message and message["role"] != "tool"]
        shown = all(name in prompt for name in names)
    else:
        shown = all(marker in found.shown for marker, (field, _) in skeleton.places.items() if field == NAME)
    return [] if shown else ["messages[].name"]
