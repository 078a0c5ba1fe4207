"""Limits on how requests are held and retried and replicas are avoided, the same for the gateway and its simulation."""

MAX_ATTEMPTS = 8
"""Replicas that one request is sent to, the first included."""
EJECTION_SECONDS = 1.0
"""For which a replica that could not be reached gets no requests; by then the routing table is up to date."""
FULL_SECONDS = 1.0
"""For which other replicas, where there are any, get the requests and not one that refused a request as full."""
CHECK_SECONDS = 10.0
"""Between two checks of a held request's key and fleet, while no replica of it is ready."""
