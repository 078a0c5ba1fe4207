"""Streams that another engine can continue: what their answers draw at random, and the journal of their tokens."""
