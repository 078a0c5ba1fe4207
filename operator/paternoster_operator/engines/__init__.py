"""One pure adapter an engine: its arguments, its numbers as ``/stats``, and the call that moves its limits."""
