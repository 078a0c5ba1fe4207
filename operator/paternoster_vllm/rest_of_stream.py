"""The rest of a stream that another vLLM began; pure but for vLLM's detokenizer, which is given.

vLLM makes the tokens of the rest; their text is made here, by a detokenizer of vLLM's that had the whole prompt and the
answer's tokens so far. Thus a character whose bytes are in tokens of both parts is whole, and a stop string that
begins before the break is found; text that was held back for one is written.
"""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

from paternoster_vllm.frames import FrameBuilder, decode_frame, find_break, write_line
from paternoster_vllm.stream_journal import Progress, encode_entry
from paternoster_vllm.streamed_call import StreamedCall


class Detokenizer(Protocol):
    """vLLM's own, of one answer."""

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None: ...

    def get_next_output_text(self, finished: bool, delta: bool) -> str: ...

    def num_output_tokens(self) -> int: ...


MakeDetokenizer = Callable[[SimpleNamespace], Detokenizer]


def describe_request(document: Mapping[str, Any], prompt: Sequence[int]) -> SimpleNamespace:
    """As much of a request of vLLM's engine as its detokenizer reads."""

    def value_of(name: str, default: Any) -> Any:
        value = document.get(name)
        return default if value is None else value

    params = SimpleNamespace(
        stop=value_of("stop", []),
        min_tokens=value_of("min_tokens", 0),
        include_stop_str_in_output=value_of("include_stop_str_in_output", False),
        skip_special_tokens=value_of("skip_special_tokens", True),
        spaces_between_special_tokens=value_of("spaces_between_special_tokens", True),
    )
    return SimpleNamespace(
        request_id="continued", prompt_token_ids=list(prompt), prompt_embeds=None, sampling_params=params
    )


class RestOfStream:
    """Makes the frames that follow those that the client has."""

    def __init__(
        self,
        call: StreamedCall,
        progress: Progress,
        limit: int,
        make_detokenizer: MakeDetokenizer,
        fingerprint: str | None = None,
    ) -> None:
        """``limit``: tokens of the whole answer at most."""
        self._frames = FrameBuilder(call, progress.head, fingerprint)
        self._call = call
        self._progress = progress
        self.limit = limit - len(progress.tokens)
        """Tokens that may follow."""
        self.ended = False
        """Whether nothing follows."""
        self.cuts = False
        """Whether vLLM should make no more tokens, as it does not know the end."""
        self._detokenizer = make_detokenizer(describe_request(call.document, progress.head.prompt))
        self._detokenizer.update(list(progress.tokens), False)
        self._detokenizer.get_next_output_text(False, True)  # which the client has

    def build_request(self) -> bytes:
        """The body for vLLM's ``/v1/completions``."""
        return self._call.build_rest_body(self._progress.head.prompt, self._progress.tokens, self.limit)

    def finish_at_once(self) -> bytes | None:
        """All frames, where no token follows."""
        progress, total = self._progress, len(self._progress.tokens)
        if progress.finish_reason is not None:
            frames = self._frames.build_end(total)[progress.frames_after_finish :]
            self.ended = True
            return b"".join(write_line("[]", frame) for frame in frames)
        return self._write_text([], "length", None) if self.limit <= 0 else None

    def write_frame(self, frame: bytes) -> bytes:
        """The frames that ``frame`` of vLLM's answer to :meth:`build_request` becomes."""
        document = decode_frame(frame)
        if document is None:
            return b""
        if broken := find_break(document):
            self.ended = True
            return broken
        if not document.get("choices"):
            return b"" if "error" not in document else write_line("[]", frame)
        choice = document["choices"][0]
        return self._write_text(choice.get("token_ids") or [], choice["finish_reason"], choice.get("stop_reason"))

    def _write_text(self, tokens: list[int], reason: str | None, stop_reason: int | str | None) -> bytes:
        before = self._detokenizer.num_output_tokens()
        matched = self._detokenizer.update(tokens, reason == "stop")
        if matched is not None:
            self.cuts = reason is None
            reason, stop_reason = "stop", matched
        total = self._detokenizer.num_output_tokens()
        used = tokens[: total - before]
        text = self._detokenizer.get_next_output_text(reason is not None, True)
        frame = self._frames.build_text(text, used, reason, stop_reason, total)
        written = write_line(encode_entry(used, reason), frame)
        if reason is not None:
            self.ended = True
            written += b"".join(write_line("[]", each) for each in self._frames.build_end(total))
        return written
