"""The gateway: what routing by cached prefixes costs and brings."""
