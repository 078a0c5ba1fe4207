"""Page of one request for a reader, from the records of a gateway. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paternoster_operator.terminal.explain import align_columns

_WAITS = {
    "no_replica_ready": "in the gateway: no replica was ready",
    "no_place": "in the gateway: no replica had a place",
    "suspected": "in the gateway: for its turn, as replicas may have stopped with it",
}
Record = Mapping[str, Any]


def describe_calls(records: Sequence[Record]) -> list[str]:
    """Every record, one below the other."""
    return [line for record in records for line in (*_describe_call(record), "")][:-1] or [
        "No call has ended here yet."
    ]


def _describe_call(record: Record) -> Iterator[str]:
    first = record["first_byte_seconds"]
    began = "no byte was sent" if first is None else f"first byte after {first:.3f} s"
    status = "no status" if record["status"] is None else f"status {record['status']}"
    yield f"{record['id']}  {record['model']}  {record['path']}  {status}"
    rows = [
        ("took", f"{record['seconds']:.3f} s; {began}"),
        ("cause", f"{record['cause']['name']}: {record['cause']['why']}"),
        ("tenant", record["tenant"] or "none: the fleet needs no key"),
        *(
            ("waited", f"{each['seconds']:.3f} s {_WAITS[each['reason']]}{_describe_held(each)}")
            for each in record["waits"]
        ),
    ]
    for number, attempt in enumerate(record["attempts"], 1):
        rows += [(f"attempt {number}", line) for line in _describe_attempt(attempt)]
    yield from (f"  {line}" for line in align_columns(iter(rows)))


def _describe_held(wait: Record) -> str:
    if "held" not in wait:
        return ""
    return f"; {wait['ready']} of {wait['replicas']} were ready, {wait['held']} requests held"


def _describe_attempt(attempt: Record) -> Iterator[str]:
    kind = "goes on at" if attempt["continues"] else "sent to"
    ended = f"{attempt['outcome']} after {attempt['seconds']:.3f} s" if "seconds" in attempt else "without an end"
    yield f"{kind} {attempt['replica']}, chosen by {attempt['by']}: {ended}"
    tenants = ", ".join(f"{name or 'none'} {count}" for name, count in attempt.get("ahead_by_tenant", {}).items())
    yield f"{attempt['ahead']} requests were there" + (f", by tenant: {tenants}" if tenants else "")
    if attempt["by"] == "prefix":
        expected = attempt["expected_seconds"]
        words = "not known yet" if expected is None else f"{expected:.3f} s"
        yield f"expected first byte {words}; {attempt['tokens_ahead']} prompt tokens ahead"
        costs = ", ".join(f"{url} {seconds:.4f} s" for url, seconds in attempt.get("nearest", {}).items())
        yield f"{attempt['candidates']} candidates, by the seconds that it costs all" + (f": {costs}" if costs else "")
        yield f"cached tokens: {attempt['promised']} promised, {attempt['captured']} captured" + (
            f", {attempt['delivered']} of {attempt['prompt_tokens']} delivered" if "delivered" in attempt else ""
        )
    elif "delivered" in attempt:
        yield f"cached tokens: {attempt['delivered']} of {attempt['prompt_tokens']} delivered"
    if (engine := attempt.get("engine")) is not None:
        yield (
            f"in the engine: queue {engine['queue_seconds']:.3f} s for {engine['waited_for']}, "
            f"prompt {engine['prefill_seconds']:.3f} s, {engine['preemptions']} preemptions"
        )
