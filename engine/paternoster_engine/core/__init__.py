"""What runs when: requests, KV blocks and the scheduler. Pure Python, no torch, no clock, no I/O."""
