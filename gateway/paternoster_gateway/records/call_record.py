"""Record the calls of a gateway, and why each took as long as it did; pure. No prompt or answer is in it.

A record follows the actions of a session and the events that answer them. It ends as a document of bounded size, and
:class:`CallRecords` keeps the last ones, shared out by fleet and tenant.
"""

import marshal
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from paternoster_contract.request_phases import RequestPhases
from paternoster_contract.routing import ModelRoute
from paternoster_contract.shares.places import SharedPlaces
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.actions import Action, AwaitTurn, EndInError, Forward, Hold, StartAttempt
from paternoster_gateway.call.attempt import Attempt, ReplicaAnswer
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.records.slow_cause import find_cause
from paternoster_gateway.routing.decisions import RoutedRequest

MOST_RECORDS = 4096
MAX_RECORD_BYTES = 4096
"""Limit for one document: with the number of records, 16 MiB at most."""
MOST_ATTEMPTS = 6
"""Attempts, and waits, of a call that are kept: the first and the last ones."""
MOST_NAMED = 4
"""Candidates of a choice, and tenants ahead, that are named."""
LONGEST_TEXT = 128

Document = dict[str, Any]


@dataclass(slots=True)
class _Row:
    document: bytes
    """Document in marshal, which takes a tenth of the time of JSON: few records are ever read."""
    digest: int | None
    """Digest of the text that was sent, up to its last whole piece."""
    replica: str
    ended: float


class CallRecords:
    """The last calls of one gateway that have ended, and which tenants have calls at each replica now."""

    def __init__(self, capacity: int = MOST_RECORDS) -> None:
        self._places: SharedPlaces[tuple[str, str]] = SharedPlaces(capacity)
        self._rows: dict[tuple[str, str], _Row] = {}
        """Rows by party and id, since clients choose ids."""
        self._by_digest: dict[int, tuple[str, str]] = {}
        self.at_replica: dict[str, Counter[str]] = {}
        """Calls of each tenant that have not ended, by URL."""

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, request_id: str) -> list[Document]:
        """The calls with that id; of several, those of other tenants chose the same."""
        return [_decode_document(row.document) for (_, own), row in self._rows.items() if own == request_id]

    def list_slowest(self, number: int, tenant: str | None = None) -> list[Document]:
        """The slowest first, of one tenant or of all."""
        documents = (_decode_document(row.document) for row in self._rows.values())
        of_tenant = [each for each in documents if tenant is None or each["tenant"] == tenant]
        return sorted(of_tenant, key=lambda each: -each["seconds"])[:number]

    def find_repeated(self, request: RoutedRequest) -> tuple[float, str, float] | None:
        """Share of a text that an earlier call had, the replica that computed it, and when it ended."""
        prompt = request.prompt
        if prompt is None or not prompt.size:
            return None
        for digest, end in zip(reversed(prompt.digests), reversed(prompt.ends), strict=True):
            if (key := self._by_digest.get(digest)) is not None:
                row = self._rows[key]
                return end / prompt.size, row.replica, row.ended
        return None

    def add(self, party: str, request_id: str, row: _Row) -> None:
        key = party, request_id
        self._drop_row(key)
        if (evicted := self._places.take_place(key, party)) is not None:
            self._drop_row(evicted)
        self._rows[key] = row
        if row.digest is not None:
            self._by_digest[row.digest] = key

    def _drop_row(self, key: tuple[str, str]) -> None:
        row = self._rows.pop(key, None)
        if row is not None and row.digest is not None and self._by_digest.get(row.digest) == key:
            del self._by_digest[row.digest]


@dataclass(slots=True)
class CallRecord:
    """One call on its way. Times are seconds of the router's clock; ``began`` is Unix time."""

    records: CallRecords
    call: Call
    admission: ClientAdmission
    request: RoutedRequest
    request_id: str
    started: float
    began: float
    _holds: list[Document] = field(default_factory=list)
    _attempts: list[Document] = field(default_factory=list)
    _doing: Action | None = None
    """The action that is carried out."""
    _since: float = 0.0
    """Its time."""
    _first_byte: float | None = None
    _status: int | None = None
    _urls: list[str] = field(default_factory=list)
    """Replicas at which the call counts as one of its tenant."""
    _has_ended: bool = False

    @property
    def _tenant(self) -> str:
        identity = self.admission.identity
        return "" if identity is None else identity.tenant[:LONGEST_TEXT]

    def begin_action(self, action: Action, row: ModelRoute | None, num_held: int, now: float) -> None:
        """``row``: of the model now; ``num_held``: requests that the gateway holds for it."""
        self._doing, self._since = action, now
        match action:
            case Hold():
                replicas = () if row is None else row.replicas
                ready = sum(each.ready for each in replicas)
                reason = "no_place" if ready else "no_replica_ready"
                self._add_wait({"reason": reason, "ready": ready, "replicas": len(replicas), "held": num_held})
            case AwaitTurn():
                self._add_wait({"reason": "suspected"})
            case StartAttempt():
                self._add_attempt(action)
            case Forward(answer):
                self._first_byte = now if self._first_byte is None else self._first_byte
                self._status = answer.status if self._status is None else self._status
            case EndInError(error):
                self._status = error.status

    def end_action(self, action: Action, event: object, now: float) -> None:
        self._doing = None
        seconds = _round(now - self._since)
        if isinstance(action, Hold | AwaitTurn):
            self._holds[-1]["seconds"] = _round(self._holds[-1]["seconds"] + seconds)
        elif isinstance(event, Attempt):
            attempt = self._attempts[-1]
            attempt |= {"seconds": seconds, "outcome": _describe_outcome(event), "failed": _has_failed(event)}
            if event.tokens is not None:
                attempt |= {"prompt_tokens": event.tokens.prompt, "delivered": event.tokens.cached}
            if event.phases is not None:
                attempt["engine"] = _describe_phases(event.phases)
            if not isinstance(event.outcome, ReplicaAnswer):
                self._leave_replica(event.url)

    def fail(self, error: BaseException) -> None:
        """The call ends without an answer: with an error, or because its client left."""
        self._status = error.status if isinstance(error, GatewayError) else self._status

    def end(self, phases: RequestPhases | None, now: float) -> None:
        """The call has ended; more than once has no effect. ``phases``: as a stream had them at its end."""
        if self._has_ended:
            return
        self._has_ended = True
        if isinstance(self._doing, Hold | AwaitTurn):
            self.end_action(self._doing, None, now)
        elif isinstance(self._doing, StartAttempt):
            self._attempts[-1] |= {"seconds": _round(now - self._since), "outcome": "its client left"}
        for url in list(self._urls):
            self._leave_replica(url)
        if phases is not None and self._attempts:
            self._attempts[-1]["engine"] = _describe_phases(phases)
        document = self._write_document(now)
        prompt, last = self.request.prompt, self._attempts[-1] if self._attempts else {}
        digest = prompt.digests[-1] if prompt is not None and prompt.digests and self._first_byte is not None else None
        row = _Row(_encode_bounded(document), digest, last.get("replica", ""), now)
        self.records.add(f"{self.admission.fleet or self.admission.model}/{self._tenant}", self.request_id, row)

    def _add_wait(self, wait: Document) -> None:
        if self._holds and self._holds[-1]["reason"] == wait["reason"]:
            return  # routed again, and held for the same
        self._holds.append({**wait, "seconds": 0.0})
        del self._holds[MOST_ATTEMPTS // 2 : -MOST_ATTEMPTS // 2]

    def _add_attempt(self, action: StartAttempt) -> None:
        url, request = action.replica.url, self.request
        pick, sent = request.pick, request.sent.get(url)
        counts = self.records.at_replica.setdefault(url, Counter())
        attempt: Document = {
            "replica": action.replica.name[:LONGEST_TEXT],
            "continues": bool(action.call.journal) or self._first_byte is not None,
            "by": "load" if pick is None or sent is None else "prefix",
            "ahead": counts.total(),
            "ahead_by_tenant": dict(counts.most_common(MOST_NAMED)),
        }
        if pick is not None and sent is not None:
            nearest = sorted(pick.costs, key=lambda each: each[1])[:MOST_NAMED]
            attempt |= {
                "candidates": pick.candidates,
                "nearest": {each[:LONGEST_TEXT]: _round(seconds) for each, seconds in nearest},
                "promised": pick.promised_tokens,
                "captured": pick.held.tokens,
                "tokens_ahead": sent.ahead,
                "expected_seconds": None if sent.expected_seconds is None else _round(sent.expected_seconds),
            }
        self._attempts.append(attempt)
        del self._attempts[MOST_ATTEMPTS // 2 : -MOST_ATTEMPTS // 2]
        counts[self._tenant] += 1
        self._urls.append(url)

    def _leave_replica(self, url: str) -> None:
        if url not in self._urls:
            return
        self._urls.remove(url)
        counts = self.records.at_replica[url]
        counts[self._tenant] -= 1
        if not counts[self._tenant]:
            del counts[self._tenant]
        if not counts:
            del self.records.at_replica[url]

    def _write_document(self, now: float) -> Document:
        document = {
            "id": self.request_id,
            "model": self.request.model[:LONGEST_TEXT],
            "namespace": self.admission.namespace[:LONGEST_TEXT],
            "tenant": self._tenant,
            "path": self.call.path[:LONGEST_TEXT],
            "stream": self.call.is_stream,
            "began": round(self.began, 3),
            "status": self._status,
            "seconds": _round(now - self.started),
            "first_byte_seconds": None if self._first_byte is None else _round(self._first_byte - self.started),
            "waits": self._holds,
            "attempts": self._attempts,
        }
        if (repeated := self.records.find_repeated(self.request)) is not None:
            share, replica, at = repeated
            document["repeated"] = {"share": round(share, 3), "replica": replica, "seconds_before": _round(now - at)}
        return document


def _describe_outcome(attempt: Attempt) -> str:
    if isinstance(attempt.outcome, ReplicaAnswer):
        return f"status {attempt.outcome.status}"
    return attempt.reason or f"status {attempt.outcome.status}"


def _has_failed(attempt: Attempt) -> bool:
    """Whether the replica was no help: it did not answer, or not as an engine that serves."""
    return not isinstance(attempt.outcome, ReplicaAnswer) or attempt.outcome.status >= 500


def _describe_phases(phases: RequestPhases) -> Document:
    return {**phases._asdict(), "waited_for": str(phases.waited_for)}


def _encode_bounded(document: Document) -> bytes:
    """Encode a document; of one that is too long, the parts that there may be many of are left out first."""
    for left_out in ((), ("nearest",), ("ahead_by_tenant",)):
        for attempt in document["attempts"]:
            for name in left_out:
                attempt.pop(name, None)
        data = marshal.dumps(document)
        if len(data) <= MAX_RECORD_BYTES:
            return data
    short = {**document, "attempts": document["attempts"][-1:], "waits": document["waits"][-1:]}
    return marshal.dumps(short)


def _decode_document(data: bytes) -> Document:
    """Decode a record, with the cause of its time."""
    document: Document = marshal.loads(data)
    name, why = find_cause(document)
    return document | {"cause": {"name": name, "why": why}}


def _round(seconds: float) -> float:
    return round(seconds, 4)
