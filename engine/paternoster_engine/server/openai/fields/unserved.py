"""Extensions that other servers have and that change an answer: refused, as an answer without them is another one."""

from typing import Annotated, Any

from pydantic import Field

from paternoster_engine.server.openai.fields.body import Body, allow_only


class UnservedFields(Body):
    """Of chat and text completions alike; names and meanings are vLLM's, and SGLang's."""

    logits_processors: Annotated[Any, allow_only([])] = Field(default_factory=list)
    prompt_embeds: Annotated[Any, allow_only()] = None
    kv_transfer_params: Annotated[Any, allow_only()] = None
    logprob_token_ids: Annotated[Any, allow_only([])] = Field(default_factory=list)
    repetition_detection: Annotated[Any, allow_only()] = None

    stop_regex: Annotated[Any, allow_only([])] = Field(default_factory=list)
    no_stop_trim: Annotated[Any, allow_only(False)] = Field(
        default=False, description="include_stop_str_in_output is the name here"
    )
    custom_logit_processor: Annotated[Any, allow_only()] = None
    lora_path: Annotated[Any, allow_only()] = None


class UnservedChatFields(UnservedFields):
    """Of chat completions besides."""

    chat_template: Annotated[Any, allow_only()] = Field(default=None, description="templates are the operator's to set")
    best_of: Annotated[Any, allow_only(1)] = 1
    mm_processor_kwargs: Annotated[Any, allow_only({})] = Field(default_factory=dict)
    moderation: Annotated[Any, allow_only()] = None
