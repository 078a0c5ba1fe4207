"""A fleet in virtual time: the real scheduler, routing and scaling law under a cost model of a step."""
