"""Keys and values written into the KV cache, and its blocks copied."""
