"""Engines of other projects under the law: what a live cap does to a real vLLM."""
