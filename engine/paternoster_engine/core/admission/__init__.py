"""Which requests may wait, which get slots and KV blocks in a step, and which lose theirs."""
