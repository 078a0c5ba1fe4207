"""Prometheus metrics and `/stats` of an engine."""
