"""Bearer keys: how they are written, compared and derived from one another. Pure.

A text of keys has one a line, so that two are valid while one replaces the other: a server accepts any of them, a
client sends the first.
"""

import hmac
import re
from collections.abc import Collection, Mapping
from hashlib import sha256

GATEWAY_TO_ENGINE = "gateway-to-engine"
OPERATOR_TO_ENGINE = "operator-to-engine"
GATEWAY_TO_OPERATOR = "gateway-to-operator"
BATCH_TO_GATEWAY = "batch-to-gateway"
READER_TO_GATEWAY = "reader-to-gateway"
"""Purpose of the key of who may read what became of all tenants' calls: who has the gateways' root key."""

KEY_DIGEST = "X-Paternoster-Key-Digest"
"""Header from the batch service to gateways: :func:`digest_key` of the key of the client that a request is for."""

_DIGEST = re.compile("[0-9a-f]{64}")


def derive_key(root: str, purpose: str, subject: str = "") -> str:
    """The key for one purpose and subject, such as a fleet's uid: HMAC-SHA256 (RFC 2104) in hex.

    Who has ``root`` can make every such key; who has one of them learns nothing of the others.
    """
    return hmac.new(root.encode(), f"{purpose}/{subject}".encode(), sha256).hexdigest()


def digest_key(key: str) -> str:
    """The form in which keys are reported and compared: SHA-256 in hex."""
    return sha256(key.encode()).hexdigest()


def matches_digest(key: str, digests: Collection[str]) -> bool:
    """Whether ``key`` is one of those whose digests these are."""
    return is_listed(digest_key(key), digests)


def is_listed(key_digest: str, digests: Collection[str]) -> bool:
    """Whether the key with ``key_digest`` is one of those whose digests these are."""
    return any(hmac.compare_digest(key_digest, valid) for valid in digests)


def read_bearer_key(authorization: str) -> str:
    """The key of an ``Authorization`` header (RFC 6750), empty where it has none."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def vouch_headers(root: str, purpose: str, key_digest: str) -> dict[str, str]:
    """Headers of a request on behalf of the client with a key of this digest, whose key the sender does not keep."""
    return {"Authorization": f"Bearer {derive_key(root, purpose, key_digest)}", KEY_DIGEST: key_digest}


def find_vouched(headers: Mapping[str, str], roots: Collection[str], purpose: str) -> str | None:
    """The digest in :func:`vouch_headers`; None where the request has none, or no key of ``roots`` for it."""
    key_digest = headers.get(KEY_DIGEST, "")
    if not _DIGEST.fullmatch(key_digest):
        return None
    sent = read_bearer_key(headers.get("Authorization", ""))
    valid = [hmac.compare_digest(sent.encode(), derive_key(root, purpose, key_digest).encode()) for root in roots]
    return key_digest if any(valid) else None


def client_key(headers: Mapping[str, str]) -> str:
    """A client's: ``X-Api-Key``, which Anthropic's clients send, where there is no bearer key.

    ``headers`` decides how names are compared; those of all HTTP servers ignore case.
    """
    return read_bearer_key(headers.get("authorization", "")) or headers.get("x-api-key", "").strip()


def parse_keys(text: str) -> tuple[str, ...]:
    """The keys of a file, in order; blank lines are none."""
    return tuple(dict.fromkeys(key for line in text.splitlines() if (key := line.strip())))
