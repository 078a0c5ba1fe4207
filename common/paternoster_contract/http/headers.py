"""Headers that engines and the gateway both know."""

REQUEST_ID = "X-Request-Id"
"""Id of a request, in every answer; generated where the client sends none."""

NOT_SERVING = "X-Paternoster-Not-Serving"
"""Header of an engine's 503 while it accepts no requests at all; the value is the reason (``loading``, ``draining``,
``ending``, ``stopped``, or :data:`DIED`). A 503 without it refuses one request only, because a queue is full for
example."""

DIED = "died"
"""Value of :data:`NOT_SERVING` for a request that the engine had when it stopped, and which may be why."""

PROMPT_TOKENS = "X-Paternoster-Prompt-Tokens"
"""Header of an engine's answer to a request that generates: tokens of its prompts. Streams have it, too, as their
headers are sent with the first token."""

CACHED_TOKENS = "X-Paternoster-Cached-Tokens"
"""Beside it: how many of these were not computed, since the prefix cache had them."""

DEBUG = "X-Paternoster-Debug"
"""Header of a client's request, with any value: the gateway's answer has :data:`ROUTING`."""

ROUTING = "X-Paternoster-Routing"
"""Why the gateway chose the replica: its number, ``by`` ``prefix`` or ``load``, and what it expected of it."""
