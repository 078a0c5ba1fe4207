"""Whole engines: against the oracle, beside the ceilings, and beside transformers."""
