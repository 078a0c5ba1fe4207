"""What vLLM's engine makes for one stream: replayed from a journal first, then recorded as the API server takes it.

A request of a stream passes :func:`replace_methods`'s three methods of vLLM's client of the engine, in the context of
the call. Where another vLLM began the stream, the tokens of its journal go through vLLM's detokenizer, its stop strings
and its log probabilities as if the engine had just made them, in the portions in which the API server took them there.
So parsers of reasoning and tools, choices, usage and events of every API are in the state in which they were, and write
the same frames. The engine then gets prompt and tokens so far as its prompt, with what is left of the limits.
"""

import copy
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from paternoster_vllm.drawn_ids import CURRENT as DRAWS
from paternoster_vllm.replayed_grammar import ANSWER_TOKENS
from paternoster_vllm.stream_journal import (
    END,
    FAILED,
    FINISH_REASONS,
    HAND_OVER,
    ChoiceOutput,
    Progress,
    encode_output,
    encode_prompt,
    encode_unsupported,
)
from paternoster_vllm.text_chains import PIECES

BuildOutput = Callable[[str, ChoiceOutput, int | None], Any]
"""An ``EngineCoreOutput`` of a request's id, and the number of its log probabilities, None where it has none."""
UNSUPPORTED_PARAMETERS = (
    "presence_penalty", "frequency_penalty", "bad_words", "thinking_token_budget", "repetition_detection",
    "prompt_logprobs", "logprob_token_ids", "flat_logprobs",
)  # fmt: skip
"""Fields of ``SamplingParams``, unless empty. Most count the answer's tokens, which are a part of the prompt at the
engine that goes on."""


class EngineOutputs:
    """Outputs of one stream, which has one request to the engine with one or more choices."""

    def __init__(self, progress: Progress, build: BuildOutput, max_model_len: int, *, advances_grammars: bool) -> None:
        self._progress = progress
        self._build = build
        self._max_model_len = max_model_len
        self._advances_grammars = advances_grammars
        self._children: list[Any] = []
        self._queue: Any = None
        self._replayed: deque[Any] = deque()
        self._ended: set[str] = set()
        self._items: list[str] = []
        self.fault = b""
        """The frames that ask for another engine, where this one can make no more; else empty."""
        self.is_complete = False
        """Whether every choice has its end."""

    def take_line(self) -> bytes:
        """The line of the journal for the next frame."""
        items, self._items = self._items, []
        return f"[{','.join(items)}]".encode()

    def refuse_continuation(self, name: str) -> None:
        """Say in the journal that no engine can go on with the stream; ``name``: what it has."""
        self._items.append(encode_unsupported(name))

    def add_request(self, add: Callable[..., None], processor: Any, request: Any, prompt: Any, *rest: Any) -> None:
        """In place of ``add``, a method of ``processor``; ``rest``: parent, number of the choice, queue of outputs."""
        parent, _, queue = rest
        if self._queue is not None and queue is not self._queue:
            self.refuse_continuation("several prompts")
            add(request, prompt, *rest)
            return
        is_first = self._queue is None
        if is_first and self._progress.prompt:
            request.prompt_token_ids = list(self._progress.prompt)
        add(request, prompt, *rest)
        if is_first:
            self._watch_queue(queue)
            if (name := self._find_unsupported(request)) is not None:
                self.refuse_continuation(name)
            else:
                self._items.append(encode_prompt(request.prompt_token_ids))
        elif self._progress.prompt:
            request.prompt_token_ids = list(self._progress.prompt)
        self._children.append(request)
        if self._progress.outputs and len(self._children) == (1 if parent is None else parent.n):
            self._replay_outputs(processor)

    @property
    def is_rest(self) -> bool:
        """Whether another engine began the stream."""
        return bool(self._progress.prompt)

    def mark_refused(self) -> None:
        """The engine has no place for the request, which another one may have."""
        self.fault = self.fault or HAND_OVER + END

    def is_ended(self, request: Any) -> bool:
        """Whether nothing is left of ``request``, so that the engine does not get it."""
        return request.request_id in self._ended

    def _find_unsupported(self, request: Any) -> str | None:
        params = request.sampling_params
        for name in UNSUPPORTED_PARAMETERS:
            if getattr(params, name, None):
                return name
        if set(params.extra_args or ()) - {PIECES}:
            return "extra_args"
        if params.logprobs == -1:
            return "logprobs of all tokens"
        if request.mm_features or request.prompt_embeds is not None:
            return "images or other media"
        if params.structured_outputs is not None and not self._advances_grammars:
            return "structured outputs"
        return None

    def _watch_queue(self, queue: Any) -> None:
        """Replayed outputs come out of ``queue`` first, and what comes out is recorded."""
        self._queue = queue
        self._take_output = take_output = queue.get_nowait
        wait_for_output = queue.get

        def get_nowait() -> Any:
            try:
                output = self._replayed.popleft() if self._replayed else take_output()
            except Exception:
                self._mark_failed()
                raise
            return None if output is None else self._record_output(output)

        async def get() -> Any:
            try:
                output = self._replayed.popleft() if self._replayed else await wait_for_output()
            except Exception:
                self._mark_failed()
                raise
            return self._record_output(output)

        queue.get_nowait, queue.get = get_nowait, get

    def _mark_failed(self) -> None:
        self.fault = FAILED + END + HAND_OVER + END

    def _record_output(self, output: Any) -> Any:
        if any(each.finish_reason not in (None, *FINISH_REASONS) for each in output.outputs):
            self.mark_refused()
        elif output.outputs:
            self._items.append(encode_output(map(_read_output, output.outputs)))
            self.is_complete = output.finished
        return output

    def _replay_outputs(self, processor: Any) -> None:
        """Through ``processor``, each by itself; the engine's requests are reduced to what is left."""
        ids = [child.request_id for child in self._children]
        tracing, processor.tracing_enabled = getattr(processor, "tracing_enabled", False), False
        try:
            for output in self._progress.outputs:
                processor.process_outputs([self._build_output(processor, ids, each) for each in output])
                if (made := self._take_output()) is not None:
                    self._replayed.append(made)
        finally:
            processor.tracing_enabled = tracing
        for choice, child in enumerate(self._children):
            tokens = self._progress.tokens_of(choice)
            if (state := processor.request_states.get(child.request_id)) is None:
                self._ended.add(child.request_id)
            elif tokens:
                state.is_prefilling = True  # so that the first token to come is no gap between two
                self._reduce_request(child, tokens)

    def _build_output(self, processor: Any, ids: list[str], output: ChoiceOutput) -> Any:
        if output.choice >= len(ids):
            raise ValueError(f"the journal has choice {output.choice}: the call has {len(ids)}")
        if (state := processor.request_states.get(ids[output.choice])) is None:
            raise ValueError(f"choice {output.choice} ends before its tokens in the journal do")
        return self._build(ids[output.choice], output, state.logprobs_processor.num_logprobs)

    def _reduce_request(self, child: Any, tokens: list[int]) -> None:
        params = copy.copy(child.sampling_params)
        child.prompt_token_ids = [*self._progress.prompt, *tokens]
        room = self._max_model_len - len(child.prompt_token_ids)
        params.max_tokens = max(1, min(params.max_tokens - len(tokens), room))
        params.min_tokens = min(params.max_tokens, max(0, params.min_tokens - len(tokens)))
        if params.structured_outputs is not None:
            params.extra_args = {**(params.extra_args or {}), ANSWER_TOKENS: len(tokens)}
        child.sampling_params = params


CURRENT: ContextVar[EngineOutputs | None] = ContextVar("paternoster_outputs", default=None)


def _read_output(output: Any) -> ChoiceOutput:
    """Read a ``CompletionOutput``."""
    logprobs = tuple(
        tuple((token, each.logprob, each.rank or 0) for token, each in position.items())
        for position in (output.logprobs or ())
    )
    return ChoiceOutput(output.index, tuple(output.token_ids), output.finish_reason, output.stop_reason, logprobs)


def replace_methods(client: Any) -> None:
    """Let requests of streams pass their :class:`EngineOutputs`; raises ``AttributeError`` where a method is missing.

    ``client``: vLLM's ``AsyncLLM``.
    """
    processor, core, inputs = client.output_processor, client.engine_core, client.input_processor
    add, send, assign = processor.add_request, core.add_request_async, inputs.assign_request_id

    def add_request(
        request: Any, prompt: Any, parent_req: Any = None, request_index: int = 0, queue: Any = None
    ) -> None:
        outputs = CURRENT.get()
        if outputs is None or queue is None or request.sampling_params is None:
            add(request, prompt, parent_req, request_index, queue)
        else:
            outputs.add_request(add, processor, request, prompt, parent_req, request_index, queue)

    async def add_request_async(request: Any) -> None:
        outputs = CURRENT.get()
        if outputs is None or not outputs.is_ended(request):
            await send(request)

    def assign_request_id(request: Any) -> None:
        """With an id that no other request of this process has, though it be of the same stream."""
        token = DRAWS.set(None)
        try:
            assign(request)
        finally:
            DRAWS.reset(token)

    processor.add_request, core.add_request_async = add_request, add_request_async
    inputs.assign_request_id = assign_request_id
    if (check := getattr(client, "check_admission", None)) is not None:

        def check_admission(*args: Any, **kwargs: Any) -> None:
            """No limit of the queue refuses the rest of a stream, which was admitted once."""
            if (outputs := CURRENT.get()) is None:
                check(*args, **kwargs)
            elif not outputs.is_rest:
                try:
                    check(*args, **kwargs)
                except Exception:
                    outputs.mark_refused()
                    raise

        client.check_admission = check_admission
