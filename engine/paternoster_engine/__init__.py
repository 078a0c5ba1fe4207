"""The lift: a continuous-batching engine with a paged KV cache."""
