"""Scaling policies against each other: scenarios, one search for everyone, and the tables of ``results.md``."""
