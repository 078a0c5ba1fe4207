"""The kernels: every operation at real shapes, compiled ahead of time, checked and timed."""
