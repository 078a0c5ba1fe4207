"""One model on several devices: tensor parallelism, one process a rank (Megatron-LM, arXiv 1909.08053)."""
