"""Requests and outputs as vLLM's client of the engine has them: text, stop strings, log probabilities, queues."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from paternoster_vllm.server_facts import order_alternatives
from paternoster_vllm.stream_journal import ChoiceOutput

END_TOKEN = 256
VOCAB_SIZE = 257


class StubDetokenizer:
    """The steps of ``vllm.v1.engine.detokenizer.BaseIncrementalDetokenizer``, for tokens that are bytes of UTF-8."""

    def __init__(self, params: Any) -> None:
        self.stop = [params.stop] if isinstance(params.stop, str) else params.stop
        self.min_tokens = params.min_tokens
        self.include = params.include_stop_str_in_output
        self.held = max(map(len, self.stop)) - 1 if self.stop and not self.include else 0
        self.tokens: list[int] = []
        self.text = ""
        self.sent = 0
        self._bytes = b""

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        before, offsets = len(self.tokens), [len(self.text)]
        for token in new_token_ids:
            self.tokens.append(token)
            is_end = stop_terminated and not self.include and token is new_token_ids[-1]
            self.text += "" if is_end else self._decode_next(token)
            offsets.append(len(self.text))
        if len(self.tokens) <= self.min_tokens:
            return None
        searched_from = offsets[min(max(self.min_tokens - before, 0), len(new_token_ids))]
        found = []
        for stop in self.stop:
            start = self.text.find(stop, max(0, searched_from + 1 - len(stop)))
            if start >= 0:
                found.append((start + len(stop), stop, start))
        if not found or not new_token_ids:
            return None
        end, stop, start = min(found, key=lambda each: each[0])
        used = next(index for index, offset in enumerate(offsets) if offset >= end and index)
        del self.tokens[before + used :]
        self.text = self.text[: end if self.include else start]
        return stop

    def get_next_output_text(self, finished: bool) -> str:
        end = len(self.text) - (0 if finished else self.held)
        text = self.text[self.sent : end] if end > self.sent else ""
        self.sent = max(self.sent, end)
        return text

    def _decode_next(self, token: int) -> str:
        if token == END_TOKEN:
            return ""
        self._bytes += bytes([token])
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            text = self._bytes.decode(errors="replace")
        self._bytes = b""
        return text


@dataclass
class Params:
    """Stub of ``SamplingParams``."""

    max_tokens: int
    n: int = 1
    min_tokens: int = 0
    stop: Any = field(default_factory=list)
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    presence_penalty: float = 0.0
    structured_outputs: Any = None
    extra_args: dict[str, Any] | None = None


@dataclass
class Request:
    """Stub of ``EngineCoreRequest``."""

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: Params
    mm_features: Any = None
    prompt_embeds: Any = None


@dataclass
class CoreOutput:
    """Stub of ``EngineCoreOutput``."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: Any = None
    rows: list[Any] = field(default_factory=list)
    """Rows of each token: itself first, then the likeliest ones."""


def build_output(request_id: str, output: ChoiceOutput, num_logprobs: int | None) -> CoreOutput:
    rows = [order_alternatives(each, num_logprobs or 0) for each in output.logprobs]
    by_string = isinstance(output.stop_reason, str)
    reason, stop = (None, None) if by_string else (output.finish_reason, output.stop_reason)
    return CoreOutput(request_id, list(output.tokens), reason, stop, rows)


def rate_tokens(token: int, num_logprobs: int) -> list[tuple[int, float, int]]:
    """A row of log probabilities: every third token is the likeliest, others are not among the likely ones."""
    first = token if token % 3 == 0 else token + 1
    likeliest = [((first + number) % VOCAB_SIZE, -0.25 * (number + 1), number + 1) for number in range(num_logprobs)]
    own = likeliest[0] if first == token and likeliest else (token, -9.5, num_logprobs + 7)
    return [own, *likeliest]


class StubQueue:
    """Stub of ``RequestOutputCollector``: outputs that were not taken are merged."""

    def __init__(self) -> None:
        self.output: Any = None
        self.ready = asyncio.Event()

    def put(self, output: Any) -> None:
        if self.output is None or isinstance(output, Exception):
            self.output = output
        else:
            self.output.finished |= output.finished
            for new in output.outputs:
                old = next((each for each in self.output.outputs if each.index == new.index), None)
                if old is None:
                    self.output.outputs.append(new)
                    continue
                old.text, old.token_ids = old.text + new.text, [*old.token_ids, *new.token_ids]
                old.logprobs = None if old.logprobs is None else [*old.logprobs, *new.logprobs]
                old.finish_reason, old.stop_reason = new.finish_reason, new.stop_reason
        self.ready.set()

    async def get(self) -> Any:
        while self.output is None:
            await self.ready.wait()
        return self._take_output()

    def get_nowait(self) -> Any:
        return self._take_output()

    def _take_output(self) -> Any:
        output, self.output = self.output, None
        self.ready.clear()
        if isinstance(output, Exception):
            raise output
        return output


class StubProcessor:
    """Stub of ``OutputProcessor``."""

    def __init__(self) -> None:
        self.request_states: dict[str, Any] = {}
        self.tracing_enabled = True

    def add_request(
        self, request: Request, prompt: Any, parent_req: Any = None, request_index: int = 0, queue: Any = None
    ) -> None:
        params = request.sampling_params
        self.request_states[request.request_id] = SimpleNamespace(
            index=request_index, parent=parent_req, queue=queue, detokenizer=StubDetokenizer(params),
            prompt_token_ids=request.prompt_token_ids, is_prefilling=True, id=request.request_id,
            logprobs_processor=SimpleNamespace(num_logprobs=params.logprobs),
        )  # fmt: skip

    def process_outputs(self, outputs: list[CoreOutput]) -> None:
        for output in outputs:
            if (state := self.request_states.get(output.request_id)) is None:
                continue
            state.is_prefilling = False
            before = len(state.detokenizer.tokens)
            stop = state.detokenizer.update(output.new_token_ids, output.finish_reason == "stop")
            if stop is not None:
                output.finish_reason, output.stop_reason = "stop", stop
            tokens = state.detokenizer.tokens[before:]
            text = state.detokenizer.get_next_output_text(output.finish_reason is not None)
            logprobs = None
            if state.logprobs_processor.num_logprobs is not None:
                logprobs = [
                    {token: SimpleNamespace(logprob=value, rank=rank) for token, value, rank in row}
                    for row in output.rows[: len(tokens)]
                ]
            made = SimpleNamespace(
                index=state.index, text=text, token_ids=tokens, logprobs=logprobs,
                finish_reason=output.finish_reason, stop_reason=output.stop_reason,
            )  # fmt: skip
            finished = output.finish_reason is not None
            if finished:
                assert not self.tracing_enabled or not output.request_id.endswith("-replayed")
                del self.request_states[output.request_id]
                if state.parent is not None:
                    state.parent.left.discard(state.id)
                    finished = not state.parent.left
            state.queue.put(SimpleNamespace(outputs=[made], finished=finished, prompt_token_ids=state.prompt_token_ids))
