"""The operations as Triton kernels, one kernel a file; each computes what its namesake in ``reference`` computes."""
