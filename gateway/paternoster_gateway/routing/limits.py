"""Limits on how requests are retried and replicas are avoided, the same for the gateway and its simulation."""

MAX_ATTEMPTS = 4
"""Replicas that one request is sent to, the first included."""
EJECTION_SECONDS = 1.0
"""For which a replica that could not be reached gets no requests; by then the routing table is up to date."""
