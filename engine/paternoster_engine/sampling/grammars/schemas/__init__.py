"""JSON schemas rewritten into what llguidance enforces, with a list of what it cannot."""
