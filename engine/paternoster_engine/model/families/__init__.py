"""Families of models, a short file each: what their files' fields mean, and what their tensors are called."""
