"""Headers that engines and the gateway both know."""

REQUEST_ID = "X-Request-Id"
"""Of every request and every answer; made where a client sends none."""

NOT_SERVING = "X-Paternoster-Not-Serving"
"""Of an engine's 503: it takes no requests at all for now, and the value says why (``loading``, ``draining``,
``ending``, ``stopped``). A 503 without it refuses one request, because a queue is full for example."""
