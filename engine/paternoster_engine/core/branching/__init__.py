"""Requests that run as several sequences at once: they share blocks, and fork where their tokens differ."""
