"""How a stream that an engine broke off goes on at another one: headers, and the journal of where its frames come from.

The gateway gives each call a :class:`StreamId`, from which an engine draws every id, time and seed of its answer, so
that two engines answer the same call alike. The engine of a stream puts a line of its journal before each frame, as a
comment of server-sent events: the tokens since the frame before. The gateway removes and stores these lines. Once the
engine breaks the stream off, the gateway sends the same body to another engine, the journal behind it, with the number
of frames that the client has: that engine makes the same frames of the same tokens, leaves out as many, and goes on.

Of an answer that has no byte yet, as a whole one has none before its end, the gateway has no journal. It asks the
engine for it: ``POST /hand-over`` with :data:`STREAM_ID` of the call and, as :data:`JOURNAL`, what the engine has in
common that would go on. The engine answers 204, or 404 where it has no such call, 412 where it computes other numbers.
After 204 it ends the call with status 503, the header :data:`JOURNAL` and the journal as the body. It does the same
with status 500 where a step failed that computed the call.

An engine that dies can be asked for nothing. So the answer to a call with :data:`PROGRESS` that takes long begins with
its journal, as :data:`PROGRESS_MEDIA_TYPE`: a line each second that has tokens, then a line with the status and the
headers of the answer (:class:`AnswerHead`), then its body.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

STREAM_ID = "X-Paternoster-Stream-Id"
"""From the gateway to engines: :meth:`StreamId.encode`."""
JOURNAL = "X-Paternoster-Journal"
"""Header of a stream whose frames have a journal: what another engine must have in common with it to continue it.

Also of its ``/health``, and of a call that it hands over."""
RESUME = "X-Paternoster-Resume"
"""From the gateway to engines: :meth:`Resume.encode`."""
NOT_CONTINUED = "X-Paternoster-Not-Continued"
"""Header of a status 400 for a resumption that every engine would refuse: what the call has."""

PROGRESS = "X-Paternoster-Progress"
"""From the gateway to engines: a whole answer may come behind its journal."""

MEDIA_TYPE = "application/vnd.paternoster.journal"
"""Media type of the answer to a call that is handed over."""
PROGRESS_MEDIA_TYPE = "application/vnd.paternoster.progress"
"""Media type of a whole answer behind its journal."""
COMMENT = b": journal "
"""How the line before a frame begins; JSON follows."""
HAND_OVER = b": continue"
"""A frame by itself: the engine cannot end the stream, and another one should."""
FAILED = b": failed"
"""A frame by itself before :data:`HAND_OVER`: a step failed that computed the stream, which may be the cause."""
DRAINING = b": draining"
"""A frame by itself: the engine admits nothing more, and goes on with the stream until another engine has it."""
MAX_JOURNAL_BYTES = 2**20
"""Limit for one stream; a longer one is not continued. 16,000 tokens are about 300 KiB."""

_STREAM_ID = re.compile(r"([0-9a-f]{32})-([0-9]{1,12})")
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_RESUME = re.compile(r"([0-9]{1,9}) ([0-9]{1,9}) ([!-~]{1,64})")


@dataclass(frozen=True, slots=True)
class StreamId:
    """Identity of one call of a client, the same at every engine that it is sent to."""

    hex: str
    """32 hexadecimal digits, drawn at random."""
    created: int
    """Unix seconds."""

    def encode(self) -> str:
        """The value of :data:`STREAM_ID`."""
        return f"{self.hex}-{self.created}"

    @classmethod
    def decode(cls, value: str) -> "StreamId":
        """The opposite of :meth:`encode`; raises ``ValueError`` for anything else."""
        if (match := _STREAM_ID.fullmatch(value)) is None:
            raise ValueError("it is not 32 hexadecimal digits, a dash and Unix seconds")
        return cls(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class Resume:
    """Which part of a stream its client has."""

    num_frames: int
    """Frames that the client has."""
    num_bytes: int
    """Length of the journal, which the body of the request ends with."""
    numerics: str
    """Value of :data:`JOURNAL` of the stream's first engine."""

    def encode(self) -> str:
        """The value of :data:`RESUME`."""
        return f"{self.num_frames} {self.num_bytes} {self.numerics}"

    @classmethod
    def decode(cls, value: str) -> "Resume":
        """The opposite of :meth:`encode`; raises ``ValueError`` for anything else."""
        if (match := _RESUME.fullmatch(value)) is None:
            raise ValueError("it is not a number of frames, a number of bytes and a fingerprint")
        return cls(int(match[1]), int(match[2]), match[3])


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status and headers of an answer behind its journal: a line that no journal has, as it begins with ``{``."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]

    def encode(self) -> bytes:
        """The line, without its end."""
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in self.headers]
        return json.dumps({"status": self.status, "headers": headers}).encode()

    @classmethod
    def decode(cls, line: bytes) -> "AnswerHead":
        """The opposite of :meth:`encode`; raises ``ValueError`` for anything else."""
        try:
            fields = json.loads(line)
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields["headers"]]
            status = _check_count(fields["status"])
        except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
            raise ValueError(f"the head of the answer cannot be read: {type(error).__name__}") from error
        if not 200 <= status <= 599:
            raise ValueError(f"the status of the answer is {status}: must be between 200 and 599")
        if not all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in headers):
            raise ValueError("a header of the answer is none that HTTP allows")
        return cls(status, headers)


@dataclass(frozen=True, slots=True)
class TokenAlternatives:
    """How likely the model held a token, as ``core.request.TokenLogprobs`` has it."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Tokens of one choice that the engine turned into text at once."""

    choice: int
    tokens: tuple[int, ...]
    finish_reason: str | None = None
    """Why the scheduler ended the choice with the last of them."""
    logprobs: tuple[TokenAlternatives, ...] = ()
    """One for each token, if the call requests them."""


def encode_entries(entries: Iterable[JournalEntry]) -> str:
    """One line: a JSON array of entries."""
    return f"[{','.join(map(_encode_entry, entries))}]"


def decode_journal(data: bytes) -> list[JournalEntry]:
    """The entries of all lines in their order; raises ``ValueError`` for what :func:`encode_entries` does not write."""
    try:
        return [_as_entry(item) for line in data.splitlines() for item in json.loads(line)]
    except (TypeError, IndexError, KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"the journal of the stream cannot be read: {type(error).__name__}") from error


def _encode_entry(entry: JournalEntry) -> str:
    """Write what ``json.dumps`` would, in a fifth of its time; engines do this for each frame."""
    reason = "null" if entry.finish_reason is None else json.dumps(entry.finish_reason)
    fields = f"{entry.choice},{reason},[{','.join(map(str, entry.tokens))}]"
    if entry.logprobs:
        logprobs = [[each.logprob, each.rank, each.top] for each in entry.logprobs]
        fields += f",{json.dumps(logprobs, separators=(',', ':'))}"
    return f"[{fields}]"


def _as_entry(item: Sequence[Any]) -> JournalEntry:
    choice, reason, tokens, *rest = item
    logprobs = [
        TokenAlternatives(
            float(logprob), _check_count(rank), tuple((_check_count(token), float(value)) for token, value in top)
        )
        for logprob, rank, top in (rest[0] if rest else ())
    ]
    if not (reason is None or isinstance(reason, str)) or (logprobs and len(logprobs) != len(tokens)):
        raise ValueError
    return JournalEntry(_check_count(choice), tuple(map(_check_count, tokens)), reason, tuple(logprobs))


def _check_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError
    return value
