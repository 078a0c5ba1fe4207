"""Kernels and engine on a CUDA device, against their references and against ceilings measured beside them."""
