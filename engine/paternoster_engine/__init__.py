"""The lift: a continuous-batching engine with a paged KV cache."""

import os

# Read by libgomp when torch loads it. Its own default lets a compute thread spin for milliseconds at every barrier,
# and an engine that shares its CPUs with any other process then runs ten times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")
