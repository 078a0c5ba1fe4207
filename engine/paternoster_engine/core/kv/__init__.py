"""The KV blocks of requests, and the keys by which the prefix cache finds blocks."""
