"""The journal of a stream of vLLM: what the gateway and this plugin say to each other; pure.

Headers, comment lines and frames by themselves are those of ``paternoster_contract.stream_journal``, which this package
cannot import. The line before the first frame is an object: what the frames have in common, and the tokens of the
prompt. Each further line is a list of entries ``[0, finish reason or null, [tokens]]``.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

STREAM_ID, JOURNAL, RESUME = b"x-paternoster-stream-id", b"x-paternoster-journal", b"x-paternoster-resume"
COMMENT, HAND_OVER, FAILED = b": journal ", b": continue", b": failed"
MAX_JOURNAL_BYTES = 2**20
END = b"\n\n"
LONGEST_NAME = 512
FINISH_REASONS = ("stop", "length")

_RESUME = re.compile(rb"([0-9]{1,9}) ([0-9]{1,9}) ([!-~]{1,64})")


class InvalidJournal(ValueError):
    """No vLLM with this plugin wrote such a journal; the text says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """What all frames of a stream have in common, and its prompt."""

    id: str
    created: int
    model: str
    prompt: tuple[int, ...]

    def encode(self, entry: str) -> bytes:
        """The first line, with the ``entry`` of the first frame."""
        fields = {"id": self.id, "created": self.created, "model": self.model}
        prompt = ",".join(map(str, self.prompt))
        return f'{json.dumps(fields)[:-1]}, "prompt": [{prompt}], "entries": {entry}}}'.encode()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream is whose client has some of its frames."""

    head: Head
    tokens: tuple[int, ...]
    finish_reason: str | None
    frames_after_finish: int
    """Of those that the client has."""


def encode_entry(tokens: Sequence[int], finish_reason: str | None) -> str:
    """The entries of one frame."""
    if not tokens and finish_reason is None:
        return "[]"
    return f"[[0,{json.dumps(finish_reason)},[{','.join(map(str, tokens))}]]]"


def decode_resume(value: bytes) -> tuple[int, int, str]:
    """Frames that the client has, bytes of the journal and fingerprint, of the header :data:`RESUME`."""
    if (match := _RESUME.fullmatch(value)) is None:
        raise InvalidJournal("it is not a number of frames, a number of bytes and a fingerprint")
    return int(match[1]), int(match[2]), match[3].decode()


def decode_journal(data: bytes, num_frames: int, vocab_size: int, max_model_len: int) -> Progress:
    """The first ``num_frames`` lines of ``data``, at least one; raises :class:`InvalidJournal`."""
    if len(data) > MAX_JOURNAL_BYTES:
        raise InvalidJournal(f"the journal has {len(data)} bytes: must have at most {MAX_JOURNAL_BYTES}")
    lines = data.split(b"\n")
    if not 1 <= num_frames <= len(lines):
        raise InvalidJournal(f"the journal has {len(lines)} lines: the client has {num_frames} frames")
    try:
        first, *others = [json.loads(line) for line in lines[:num_frames]]
    except (ValueError, RecursionError):
        raise InvalidJournal("a line of the journal is not JSON") from None
    head = _read_head(first, vocab_size)
    tokens: list[int] = []
    finish_reason, after = None, 0
    for entries in (first.get("entries"), *others):
        if finish_reason is not None:
            after += 1
        if not isinstance(entries, list):
            raise InvalidJournal("a line of the journal is no list of entries")
        for entry in entries:
            if finish_reason is not None:
                raise InvalidJournal("the journal has tokens behind the end of the choice")
            finish_reason = _read_entry(entry, tokens, vocab_size)
    if len(head.prompt) + len(tokens) > max_model_len:
        raise InvalidJournal(f"prompt and answer have {len(head.prompt) + len(tokens)} tokens of {max_model_len}")
    return Progress(head, tuple(tokens), finish_reason, after)


def _read_head(first: Any, vocab_size: int) -> Head:
    if not isinstance(first, dict):
        raise InvalidJournal("the first line of the journal is no object")
    stream_id, created, model, prompt = (first.get(name) for name in ("id", "created", "model", "prompt"))
    if not (isinstance(stream_id, str) and isinstance(model, str) and type(created) is int):
        raise InvalidJournal("the first line of the journal lacks id, created or model")
    if len(stream_id) > LONGEST_NAME or len(model) > LONGEST_NAME or not 0 <= created < 2**40:
        raise InvalidJournal("the first line of the journal has an id, created or model that is too long")
    if not prompt:
        raise InvalidJournal("the journal has no prompt")
    return Head(stream_id, created, model, _read_tokens(prompt, vocab_size))


def _read_entry(entry: Any, tokens: list[int], vocab_size: int) -> str | None:
    """Add the tokens of ``entry``; why the choice ends with them, None where it goes on."""
    if not isinstance(entry, list) or len(entry) != 3 or type(entry[0]) is not int or entry[0] != 0:
        raise InvalidJournal("an entry of the journal is not [0, finish reason, tokens]")
    reason = entry[1]
    if reason is not None and reason not in FINISH_REASONS:
        raise InvalidJournal("a finish reason of the journal is neither stop nor length")
    tokens += _read_tokens(entry[2], vocab_size)
    return str(reason) if reason is not None else None


def _read_tokens(value: Any, vocab_size: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < vocab_size for token in value):
        raise InvalidJournal(f"a token of the journal is none of the {vocab_size} of the vocabulary")
    return tuple(value)
