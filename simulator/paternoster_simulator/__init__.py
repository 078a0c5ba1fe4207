"""A fleet in virtual time: the real scheduler, the real routing and the real scaling law under a cost model of a step."""
