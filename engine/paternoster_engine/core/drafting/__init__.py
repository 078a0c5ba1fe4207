"""The state of a request's proposals, and proposals from its own tokens."""
