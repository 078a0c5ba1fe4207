"""The part of a call's time that was longest, and what it was of; pure."""

from collections.abc import Mapping
from typing import Any

CACHED_SHARE = 0.5
"""Least part of the tokens that were to be cached without which the cache was missed."""
FEW_TOKENS = 16
"""A block: fewer tokens are no miss."""
_WAITS = {
    "no_replica_ready": "cold_start",
    "no_place": "gateway_queue",
    "suspected": "suspected",
}
Document = Mapping[str, Any]


def find_cause(record: Document) -> tuple[str, str]:
    """Name and words of the cause of a call's time, from its record without one."""
    attempts = record["attempts"]
    last = attempts[-1] if attempts else {}
    engine = last.get("engine", {})
    parts = dict.fromkeys((*_WAITS.values(), "replica_failed", "engine_queue", "prefill", "answer"), 0.0)
    for wait in record["waits"]:
        parts[_WAITS[wait["reason"]]] += wait["seconds"]
    for attempt in attempts:
        if attempt.get("failed") or attempt["continues"]:
            parts["replica_failed"] += attempt.get("seconds", 0.0)
    if engine and not last["continues"]:
        parts["engine_queue"] = engine["queue_seconds"]
        parts["prefill"] = engine["prefill_seconds"]
    elif not last.get("failed") and not last.get("continues"):
        parts["prefill"] = last.get("seconds", 0.0)
    begun = record["first_byte_seconds"]
    if begun is not None:
        whole = last.get("seconds", 0.0) - parts["engine_queue"] - parts["prefill"] if engine else 0.0
        # A whole answer comes with its first byte.
        parts["answer"] = record["seconds"] - begun + (0.0 if record["stream"] else max(0.0, whole))
    longest = max(parts, key=lambda name: parts[name])
    if not parts[longest]:
        return "none", "nothing of it took time"
    seconds = f"{parts[longest]:.3g} s of {record['seconds']:.3g} s"
    return _name_cause(longest, seconds, record, last)


def _name_cause(longest: str, seconds: str, record: Document, last: Document) -> tuple[str, str]:
    engine = last.get("engine", {})
    preemptions = engine.get("preemptions", 0)
    if longest == "cold_start":
        replicas = max(wait.get("replicas", 0) for wait in record["waits"])
        return longest, f"{seconds} until a replica was ready; 0 of {replicas} were"
    if longest == "gateway_queue":
        held = max(wait.get("held", 0) for wait in record["waits"])
        return longest, f"{seconds} in the gateway until a replica had a place; {held} requests were held"
    if longest == "suspected":
        return longest, f"{seconds} until other requests that replicas may have stopped with were sent alone"
    if longest == "replica_failed":
        failed = [each for each in record["attempts"] if each.get("failed")]
        named = ", ".join(f"{each['replica']} ({each['outcome']})" for each in failed) or "a replica broke off"
        return longest, f"{seconds} for attempts that failed or had to be continued: {named}"
    if longest in ("prefill", "answer") and preemptions:
        where = "computing the prompt" if longest == "prefill" else "making the answer"
        return "preemption", f"{seconds} {where}, preempted {preemptions} times at {last['replica']}"
    if longest == "engine_queue":
        tenants = ", ".join(f"{name or 'no tenant'} {count}" for name, count in last["ahead_by_tenant"].items())
        ahead = f"{last['ahead']} requests were there" + (f" ({tenants})" if tenants else "")
        return longest, f"{seconds} in the queue of {last['replica']} for {engine['waited_for']}; {ahead}"
    if longest == "prefill":
        return _name_prefill(seconds, record, last)
    return "decode", f"{seconds} making the answer"


def _name_prefill(seconds: str, record: Document, last: Document) -> tuple[str, str]:
    prompt, delivered = last.get("prompt_tokens", 0), last.get("delivered", 0)
    repeated: Document = record.get("repeated", {})
    had = {
        "captured": last.get("captured", 0),
        "promised": last.get("promised", 0),
        "repeated": round(repeated.get("share", 0.0) * prompt),
    }
    expected = max(had, key=lambda name: had[name])
    counted = f"{delivered} of {prompt} prompt tokens were cached"
    if prompt and had[expected] >= FEW_TOKENS and delivered < CACHED_SHARE * had[expected]:
        why = {
            "captured": f"{last['replica']} was to have {had[expected]}",
            "promised": f"another replica has {had[expected]}, and load decided",
            "repeated": f"{repeated.get('replica')} had {had[expected]} {repeated.get('seconds_before')} s before",
        }[expected]
        return "cache_miss", f"{seconds} computing the prompt: {counted}; {why}"
    if "engine" not in last and not prompt:
        return "engine", f"{seconds} at {last.get('replica', 'no replica')}, which states nothing of it"
    return "prefill", f"{seconds} computing the prompt: {counted}"
