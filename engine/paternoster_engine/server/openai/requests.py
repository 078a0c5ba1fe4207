"""Bodies of generating calls: the OpenAI API's requests, with vLLM's sampling extensions.

A field for something that the engine does not do is refused by name, unless its value has no effect: such fields are
marked with ``only`` the values that are fine. An unknown one is left out, and named in a header of the answer
(:class:`~paternoster_engine.server.openai.fields.body.Body`). ``null`` is the same as leaving a field out.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from paternoster_contract.limits import MAX_PRIORITY, MIN_PRIORITY
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.server.openai.fields.body import (
    MAX_CHOICES,
    MAX_LOGPROBS,
    Body,
    LogitBias,
    Metadata,
    Prompts,
    StopStrings,
    Text,
    TokenIds,
    accept_hint,
    allow_only,
    report_ignored,
)
from paternoster_engine.server.openai.fields.structured import StructuredFields
from paternoster_engine.server.openai.fields.template import ReasoningFields, TemplateFields, ToolFields
from paternoster_engine.server.openai.messages import Messages

LEAST_TEMPERATURE = 1e-5
"""Below it is greedy, as in vLLM: a logit over a temperature near 0 is no number of float32 any more."""
RANDOM_SEED = -1
"""What clients that must send a seed mean none by, as in vLLM and llama.cpp."""
LEAST_PENALTY = 1e-5
"""Least repetition penalty: no logit over one near 0 is a number, nor is what a grammar forbids times 0."""


MAX_WORDS, MAX_WORD = 256, 256
"""Limits for ``bad_words``, and for characters of each."""


class UnservedFields(Body):
    """Extensions of vLLM and SGLang that change an answer: refused, as an answer without them is another one."""

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
    """Fields that chat completions alone have."""

    chat_template: Annotated[Any, allow_only()] = Field(default=None, description="templates are the operator's to set")
    best_of: Annotated[Any, allow_only(1)] = 1
    mm_processor_kwargs: Annotated[Any, allow_only({})] = Field(default_factory=dict)
    moderation: Annotated[Any, allow_only()] = None


B = TypeVar("B", bound=Body)


def with_defaults(body: B, defaults: Mapping[str, Any]) -> B:
    """``body`` with those of ``defaults`` that are fields of its type and were left out."""
    missing = {name: value for name, value in defaults.items() if name not in body.model_fields_set}
    return body.model_copy(update={name: missing[name] for name in missing.keys() & type(body).model_fields.keys()})


class StreamOptions(Body):
    include_usage: bool = Field(default=False, description="one more chunk at the end, which has the usage")
    continuous_usage_stats: bool = Field(
        default=False, description="the usage so far in each chunk, too; needs `include_usage`, as vLLM's extension"
    )
    include_obfuscation: Annotated[bool, accept_hint(False)] = Field(default=False, description="true is ignored")


class GenerationRequest(StructuredFields, UnservedFields):
    """What chat and text completions have in common."""

    model: Text | None = Field(default=None, description="served model (default: the one there is)")
    stream: bool = False
    stream_options: StreamOptions | None = None

    temperature: float = Field(default=1.0, ge=0, le=2, description="0 is greedy, and so is what is below 0.00001")
    top_p: float = Field(default=1.0, ge=0, le=1, description="0 is greedy: the likeliest token, as in the OpenAI API")
    top_k: int = Field(default=0, ge=-1, lt=2**31, description="0 and -1 switch it off")
    min_p: float = Field(default=0.0, ge=0, le=1)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, ge=LEAST_PENALTY, le=2)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, description="-1 draws one, as leaving it out does")
    stop: StopStrings = Field(default_factory=list)
    stop_token_ids: TokenIds = Field(default_factory=list, max_length=64)
    min_tokens: int = Field(
        default=0, ge=0, description="no end of text and no stop string before this number of tokens"
    )
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    user: Text | None = Field(
        default=None,
        max_length=256,
        description="of no effect: whom a request is from is what its key says",
    )
    priority: int = Field(
        default=0, ge=MIN_PRIORITY, le=MAX_PRIORITY, description="class; lower is served first, as in vLLM"
    )
    cache_salt: Text | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="serve the prompt from prefixes of the same salt alone, and keep its own from others, as in vLLM",
    )
    deadline_ms: int | None = Field(
        default=None, ge=1, lt=2**53, description="milliseconds after which the request is not worth a prefill any more"
    )
    n: int = Field(default=1, ge=1, le=MAX_CHOICES, description="choices for each prompt")
    prompt_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="answer with each prompt token's log probability and those of this number of others",
    )
    logit_bias: LogitBias = Field(
        default_factory=dict, description="by token id: what is added to its logit, -100 to 100"
    )
    allowed_token_ids: TokenIds = Field(
        default_factory=list, description="the only tokens that may come, ends of text among them if there are any"
    )
    bad_words: list[Annotated[Text, Field(min_length=1, max_length=MAX_WORD)]] = Field(
        default_factory=list,
        max_length=MAX_WORDS,
        description="words that may not come: of the tokens that spell one, the last not behind the others",
    )
    thinking_token_budget: int | None = Field(
        default=None,
        ge=-1,
        description="tokens of thinking after which the mark that ends it is forced, as in vLLM; -1: no limit",
    )
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        description="cut longer prompts to this many tokens, as vLLM; -1: to what the context leaves beside the limit "
        "of output. A prompt that is too long is refused without it",
    )
    truncation_side: Literal["left", "right"] = Field(
        default="left", description="where longer prompts are cut: left keeps the last tokens, right the first ones"
    )
    return_token_ids: bool = Field(
        default=False, description="answer with the ids of the prompt and of the answer, as vLLM"
    )
    return_tokens_as_token_ids: bool = Field(
        default=False, description="log probabilities name tokens by their ids, as token_id:5, as vLLM"
    )
    use_beam_search: bool = Field(
        default=False, description="search for the likeliest answers with n (or best_of) beams, as vLLM's extension"
    )
    length_penalty: float = Field(
        default=1.0, ge=-10, le=10, description="beam search: above 0 favours long answers, below 0 short ones"
    )
    early_stopping: bool | Literal["never"] = Field(
        default=False,
        description="beam search: end as soon as there are enough answers; never: when none can be better",
    )

    @field_validator("stream_options")
    @classmethod
    def _need_stream(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream"):
            raise ValueError("only allowed with stream=true")
        return value

    @field_validator("prompt_logprobs")
    @classmethod
    def _need_whole(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("stream"):
            raise ValueError("only allowed with stream=false")
        return value

    @property
    @abstractmethod
    def num_logprobs(self) -> int | None:
        """How many of the best tokens the answer has in place of each output token; None for no log probabilities."""

    @property
    def num_computed_prompt_logprobs(self) -> int | None:
        """Log probabilities of prompt tokens, see :attr:`num_logprobs`, for whatever the answer needs them."""
        return self.prompt_logprobs

    @property
    def echoes(self) -> bool:
        """Whether each choice begins with its prompt."""
        return False

    @property
    def only_echoes(self) -> bool:
        """Whether it ends with its prompt."""
        return False

    @property
    def sequences(self) -> int:
        """How many are generated for each prompt, or searched with."""
        return self.n

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        return self.include_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def greedy(self) -> bool:
        """Whether each token is the likeliest one, which beams are ranked by, too."""
        return self.use_beam_search or self.temperature < LEAST_TEMPERATURE or self.top_p == 0

    def sampling_params(self, max_tokens: int) -> SamplingParams:
        ranks_samples = not self.use_beam_search and self.sequences > self.n
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=0.0 if self.greedy else self.temperature,
            top_k=max(0, self.top_k),
            top_p=self.top_p,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=tuple(self.logit_bias.items()),
            seed=None if self.seed == RANDOM_SEED else self.seed,
            stop=tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            include_stop_str_in_output=self.include_stop_str_in_output,
            logprobs=0 if self.num_logprobs is None and ranks_samples else self.num_logprobs,
            prompt_logprobs=self.num_computed_prompt_logprobs,
        )


class ChatCompletionRequest(GenerationRequest, ReasoningFields, ToolFields, UnservedChatFields):
    """Body of ``POST /v1/chat/completions``."""

    messages: Messages
    echo: bool = Field(default=False, description="with continue_final_message: tell what it goes on with, too")
    max_tokens: int | None = Field(default=None, ge=1, description="older name of max_completion_tokens, which wins")
    max_completion_tokens: int | None = Field(default=None, ge=1, description="default: what the context leaves")

    prompt_cache_key: Text | None = Field(default=None, description="taken and not used: every prompt is cached")
    safety_identifier: Text | None = Field(default=None, description="taken and not used")
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_LOGPROBS)
    functions: Annotated[Any, allow_only([])] = Field(default_factory=list)
    function_call: Annotated[Any, allow_only("none", "auto")] = "none"
    modalities: Annotated[Any, allow_only(["text"])] = Field(default_factory=lambda: ["text"])
    service_tier: Annotated[Text, accept_hint("auto", "default")] = Field(
        default="auto", description="others are ignored"
    )
    store: Annotated[bool, accept_hint(False)] = Field(default=False, description="nothing is stored: true is ignored")
    metadata: Metadata = Field(default_factory=dict, description="taken and not used: nothing is stored")
    audio: Annotated[Any, allow_only()] = None
    prediction: Annotated[dict[str, Any] | None, accept_hint(None)] = Field(
        default=None, description="only saves time: ignored"
    )
    web_search_options: Annotated[dict[str, Any] | None, accept_hint(None)] = Field(
        default=None, description="nothing is searched: ignored"
    )

    def sampling_params(self, max_tokens: int) -> SamplingParams:
        """Where a call is required, its grammar says where the answer ends: stops are left out and reported."""
        params = super().sampling_params(max_tokens)
        if self.required_calls is None:
            return params
        report_ignored(*(name for name in ("stop", "stop_token_ids") if getattr(self, name)))
        return replace(params, stop=(), stop_token_ids=())

    @field_validator("echo")
    @classmethod
    def _need_text(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("continue_final_message"):
            raise ValueError("only allowed with continue_final_message=true")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _need_logprobs(cls, value: int, info: ValidationInfo) -> int:
        if value > 0 and not info.data.get("logprobs"):
            raise ValueError("only allowed with logprobs=true")
        return value

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def echoed_text(self) -> str:
        """What each choice begins with that the model did not generate."""
        return self.messages[-1].text if self.echo else ""

    @property
    def limit(self) -> int | None:
        """Most tokens to generate, None for as many as fit."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


class CompletionRequest(GenerationRequest):
    """Body of ``POST /v1/completions``; each prompt of a list becomes ``n`` choices."""

    prompt: Prompts
    add_special_tokens: bool = Field(default=True, description="let the tokenizer put its marks around the text")

    best_of: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHOICES,
        description="generate this number and give the n that are likeliest a token; with use_beam_search the best n",
    )
    echo: bool = Field(default=False, description="begin each choice with its prompt")
    max_tokens: int = Field(default=16, ge=0, description="0, only with echo: nothing but the prompt")
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    suffix: Annotated[Any, allow_only("")] = ""

    @field_validator("max_tokens")
    @classmethod
    def _something_to_give(cls, value: int, info: ValidationInfo) -> int:
        if value == 0 and (not info.data.get("echo") or info.data.get("use_beam_search")):
            raise ValueError("must be at least 1, unless with echo=true and without use_beam_search")
        return value

    @field_validator("best_of")
    @classmethod
    def _best_of_more(cls, value: int | None, info: ValidationInfo) -> int | None:
        n = info.data.get("n")
        if value is None or n is None or value == n:
            return value
        if value < n:
            raise ValueError(f"n asks for {n} choices: must be at least that")
        if info.data.get("stream"):
            raise ValueError("above n only allowed with stream=false")
        return value

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def num_computed_prompt_logprobs(self) -> int | None:
        if not self.echo or self.logprobs is None:
            return self.prompt_logprobs
        return max(self.logprobs, self.prompt_logprobs or 0)

    @property
    def echoes(self) -> bool:
        return self.echo

    @property
    def only_echoes(self) -> bool:
        return self.max_tokens == 0

    @property
    def sequences(self) -> int:
        # Of choices that are all the prompt there are no best ones.
        return self.n if self.best_of is None or self.only_echoes else self.best_of


class TokenizeRequest(TemplateFields):
    """Body of ``POST /tokenize``: either ``prompt`` or ``messages``."""

    model: Text | None = None
    prompt: Text | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = Field(default=None, description="default: true for a prompt, false for messages")
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _prompt_or_messages(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class DetokenizeRequest(Body):
    """Body of ``POST /detokenize``."""

    model: Text | None = None
    tokens: TokenIds
