"""Bounds that more than one part of the system checks."""

MIN_PRIORITY = -1000
MAX_PRIORITY = 1000
"""Classes of requests; lower is served first."""
