"""Limits on how requests are held and retried and replicas are avoided, the same for the gateway and its simulation."""

MAX_ATTEMPTS = 8
"""Replicas that one request is sent to, the first included."""
EJECTION_SECONDS = 1.0
"""For which a replica that could not be reached gets no requests; by then the routing table is up to date."""
FULL_SECONDS = 1.0
"""For which other replicas, where there are any, get the requests and not one that refused a request as full."""
CHECK_SECONDS = 10.0
"""Between two checks of a held request's key and fleet, while no replica of it is ready."""
QUIET_SECONDS = 1.0
"""Time without a byte from a replica that owes some, after which the gateway probes it."""
PROBE_SECONDS = 2.2
"""Without an answer to a probe, until the next is sent. A healthy engine takes milliseconds, a starved one seconds."""
PROBES = 3
"""Probes without an answer until a replica is hung: two may be lost, and a late answer to the first one counts, too."""
ANSWERED_SECONDS = 2.0
"""Time from sending a body until a replica that then sends a byte has received, read and checked it."""
HAND_OVER_SECONDS = 1.0
"""Time between two tries to hand over what a draining replica has."""
