"""Which text the prefix cache has: chains of requests tied to tokens of their prompts, and the stream for gateways."""
